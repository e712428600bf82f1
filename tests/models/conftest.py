"""Reference models in PyTorch, and the way from their weights to ours."""

import dataclasses

import jax
import numpy as np
import pytest


@dataclasses.dataclass(frozen=True)
class Reference:
  """Hugging Face's BERT, random but with no parameter left at 0 or 1."""

  model: object  # transformers.BertForPreTraining

  def params(self, gradients=False):
    """Returns its parameters, or their gradients, as a tree like ours."""
    tensors = dict(self.model.named_parameters(remove_duplicate=False))
    arrays = {
      name: (t.grad if gradients else t).detach().numpy().copy()
      for name, t in tensors.items()
    }
    tree = rename(arrays, self.model.config)
    # Both are other names of arrays that were used.
    del arrays['cls.predictions.decoder.weight']
    del arrays['cls.predictions.decoder.bias']
    assert not arrays, f'parameters without a name here: {sorted(arrays)}'
    return tree


def rename(arrays, config):
  """Moves PyTorch's arrays into our tree, taking each out of `arrays`."""
  D, N = config.hidden_size, config.num_attention_heads
  H = D // N
  padding = -config.vocab_size % 128

  def norm(prefix):
    return {
      'scale': arrays.pop(f'{prefix}.weight'),
      'bias': arrays.pop(f'{prefix}.bias'),
    }

  def linear(prefix, kernel_shape=None, bias_shape=None):
    kernel = arrays.pop(f'{prefix}.weight').T
    bias = arrays.pop(f'{prefix}.bias')
    return {
      'kernel': kernel.reshape(kernel_shape or kernel.shape),
      'bias': bias.reshape(bias_shape or bias.shape),
    }

  def layer(i):
    prefix = f'bert.encoder.layer.{i}'
    qkv = [
      linear(f'{prefix}.attention.self.{name}', (D, N, H), (N, H))
      for name in ('query', 'key', 'value')
    ]
    return {
      'attention': {
        'qkv': {
          'kernel': np.stack([part['kernel'] for part in qkv], axis=1),
          'bias': np.stack([part['bias'] for part in qkv]),
        },
        'out': linear(f'{prefix}.attention.output.dense', (N, H, D)),
      },
      'attention_norm': norm(f'{prefix}.attention.output.LayerNorm'),
      'mlp': {
        'in': linear(f'{prefix}.intermediate.dense'),
        'out': linear(f'{prefix}.output.dense'),
      },
      'mlp_norm': norm(f'{prefix}.output.LayerNorm'),
    }

  layers = [layer(i) for i in range(config.num_hidden_layers)]
  embeddings = 'bert.embeddings'
  head = 'cls.predictions.transform'
  return {
    'embeddings': {
      'tokens': {
        'embedding': np.pad(
          arrays.pop(f'{embeddings}.word_embeddings.weight'),
          ((0, padding), (0, 0)),
        )
      },
      'positions': arrays.pop(f'{embeddings}.position_embeddings.weight'),
      'token_types': arrays.pop(f'{embeddings}.token_type_embeddings.weight'),
      'layer_norm': norm(f'{embeddings}.LayerNorm'),
    },
    'layers': jax.tree.map(lambda *leaves: np.stack(leaves), *layers),
    'pooler': linear('bert.pooler.dense'),
    'mlm': {
      'dense': linear(f'{head}.dense'),
      'layer_norm': norm(f'{head}.LayerNorm'),
      'bias': np.pad(arrays.pop('cls.predictions.bias'), (0, padding)),
    },
    'nsp': linear('cls.seq_relationship'),
  }


@pytest.fixture(scope='session')
def torch():
  torch = pytest.importorskip('torch')
  # One thread: two that wait for each other on a busy machine take 5 x as long.
  torch.set_num_threads(1)
  return torch


@pytest.fixture(scope='session')
def make_reference(torch):
  """Returns a function (sizes, vocab_size, gelu) -> Reference."""
  transformers = pytest.importorskip('transformers')

  def make(sizes, vocab_size, gelu):
    config = transformers.BertConfig(
      vocab_size=vocab_size,
      hidden_size=sizes['embed_dim'],
      num_hidden_layers=sizes['num_layers'],
      num_attention_heads=sizes['num_heads'],
      intermediate_size=sizes['mlp_dim'],
      hidden_act={'erf': 'gelu', 'tanh': 'gelu_new'}[gelu],
      hidden_dropout_prob=0.0,
      attention_probs_dropout_prob=0.0,
      pad_token_id=None,
      attn_implementation='eager',
    )
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(config)
    with torch.no_grad():
      for parameter in model.parameters():
        parameter += 0.02 * torch.randn_like(parameter)
    return Reference(model)

  return make


@pytest.fixture(scope='session')
def make_gpt_reference(torch):
  """Returns a function (sizes, vocab_size, pre_norm, noise) -> PyTorch model.

  Hugging Face's GPT or GPT-2, random, with no parameter left at 0 or 1.
  """
  transformers = pytest.importorskip('transformers')

  def make(sizes, vocab_size, pre_norm, noise=0.02):
    kind = 'GPT2' if pre_norm else 'OpenAIGPT'
    config = getattr(transformers, f'{kind}Config')(
      vocab_size=vocab_size,
      n_positions=64,
      n_embd=sizes['embed_dim'],
      n_layer=sizes['num_layers'],
      n_head=sizes['num_heads'],
      resid_pdrop=0.0,
      embd_pdrop=0.0,
      attn_pdrop=0.0,
      bos_token_id=None,
      eos_token_id=None,
      attn_implementation='eager',
    )
    torch.manual_seed(0)
    model = getattr(transformers, f'{kind}LMHeadModel')(config)
    with torch.no_grad():
      for parameter in model.parameters():
        parameter += noise * torch.randn_like(parameter)
    return model.eval()

  return make
