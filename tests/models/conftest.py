"""Reference models in PyTorch."""

import dataclasses

import jax
import numpy as np
import published_cases
import pytest
from etils import epath

from models.pretrained import bert as pretrained


@dataclasses.dataclass(frozen=True)
class Reference:
  """Hugging Face's BERT, random but with no parameter left at 0 or 1."""

  model: object  # transformers.BertForPreTraining

  def params(self, gradients=False):
    """Returns its parameters, or their gradients, as a tree like ours."""
    named = self.model.named_parameters(remove_duplicate=False)
    arrays = {
      name: (t.grad if gradients else t).detach().numpy().copy()
      for name, t in named
    }
    weights = pretrained.from_hugging_face(
      epath.Path('reference'),
      self.model.config.to_dict(),
      published_cases.in_memory(arrays),
    )
    return jax.tree.map(np.array, weights.load())


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
      hidden_act={'erf': 'gelu', 'tanh': 'gelu_new', 'relu': 'relu'}[gelu],
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
