"""Small published weights of each kind, their vocabulary beside them."""

import json
import re
import shutil

import numpy as np

from data.vocabulary import byte_bpe

SIZES = dict(
  hidden_size=32,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=64,
  max_position_embeddings=64,
)
GPT_SIZES = dict(n_layer=2, n_embd=32, n_head=2, n_positions=64)
HEADS = {  # of Hugging Face's classes -> ours
  'BertForPreTraining': ('pooler', 'mlm', 'nsp'),
  'BertModel': ('pooler',),  # as of MiniLM
  'BertForTokenClassification': (),
  'BertForSequenceClassification': ('pooler',),
}


def write_bert(
  folder, tokenizer, kind='BertForPreTraining', *, rows=None, **sizes
):
  """Writes a BERT as transformers does; returns the model.

  With rows the token table is padded to so many.
  """
  import transformers

  config = transformers.BertConfig(
    vocab_size=rows or tokenizer.vocab_size, **{**SIZES, **sizes}
  )
  return _write(getattr(transformers, kind)(config), folder, tokenizer)


def write_gpt(folder, tokenizer, *, rows=None, **sizes):
  """Writes a GPT or GPT-2, as the tokenizer is; see `write_bert`."""
  import transformers

  sizes = {**GPT_SIZES, **sizes}
  if isinstance(tokenizer, byte_bpe.ByteBPE):
    config = transformers.GPT2Config(
      vocab_size=rows or tokenizer.vocab_size, **sizes
    )
    model = transformers.GPT2LMHeadModel(config)
  else:
    # Without the three symbols that texts do not give.
    config = transformers.OpenAIGPTConfig(
      vocab_size=rows or tokenizer.vocab_size - 3, **sizes
    )
    model = transformers.OpenAIGPTLMHeadModel(config)
  return _write(model, folder, tokenizer)


def _write(model, folder, tokenizer):
  import torch

  random = np.random.default_rng(0)
  for parameter in model.parameters():
    noise = random.normal(0, 0.1, parameter.shape).astype(np.float32)
    parameter.data += torch.from_numpy(noise)
  model.eval().save_pretrained(folder)
  save_vocabulary(tokenizer, folder)
  return model


def save_vocabulary(tokenizer, folder):
  """Under the names of publishers, and nothing of ours beside it."""
  tokenizer.save(folder)
  if (folder / 'encoder.json').exists():
    (folder / 'encoder.json').rename(folder / 'vocab.json')
    (folder / 'vocab.bpe').rename(folder / 'merges.txt')
  (folder / 'tokenizer_settings.json').unlink()
  (folder / 'tokenizer.json').unlink(missing_ok=True)


def change(folder, key, value):
  """Changes a key of config.json; None takes it out."""
  file = folder / 'config.json'
  config = json.loads(file.read_text()) | {key: value}
  if value is None:
    del config[key]
  file.write_text(json.dumps(config))


# --- As first released


def release_bert(folder, model, source):
  """Writes a BERT as google-research/bert does, with its optimiser's slots."""
  arrays = {'global_step': np.array(7)}
  for name, tensor in model.state_dict().items():
    array = tensor.numpy()
    if name.startswith('cls.predictions.decoder.') or 'position_ids' in name:
      continue  # the word embeddings and the output bias again
    if name == 'cls.predictions.bias':
      name = 'cls/predictions/output_bias'
    elif 'seq_relationship' in name:
      end = {'weight': 'weights', 'bias': 'bias'}[name.rpartition('.')[2]]
      name = f'cls/seq_relationship/output_{end}'
    elif name.endswith('embeddings.weight'):
      name = name.removesuffix('.weight')
    elif 'LayerNorm' in name:
      name = name.replace('weight', 'gamma').replace('bias', 'beta')
    elif name.endswith('weight'):
      name, array = name.replace('weight', 'kernel'), array.T
    name = re.sub(r'layer\.(\d+)', r'layer_\1', name).replace('.', '/')
    arrays |= {name: array, f'{name}/adam_m': 0 * array}
  _write_tensorflow(folder / 'bert_model.ckpt', arrays)
  config = json.loads((source / 'config.json').read_text())
  keys = 'vocab_size hidden_act hidden_dropout_prob type_vocab_size'.split()
  keys += ['attention_probs_dropout_prob', 'initializer_range', *SIZES]
  (folder / 'bert_config.json').write_text(
    json.dumps({key: config[key] for key in keys})
  )
  shutil.copy(source / 'vocab.txt', folder)


def release_gpt2(folder, model, source):
  """Writes a GPT-2 as openai/gpt-2 does."""
  arrays = {}
  for name, tensor in model.transformer.state_dict().items():
    array = tensor.numpy()
    name = re.sub(r'^h\.(\d+)', r'h\1', name)
    if re.search(r'(attn|mlp)\.c_\w+\.weight$', name):
      array = array[None]
    kind = 'g' if '.ln_' in f'.{name}' else 'w'
    name = re.sub(r'^(w[tp]e)\.weight$', r'\1', name)
    name = re.sub(r'weight$', kind, re.sub(r'bias$', 'b', name))
    arrays['model/' + name.replace('.', '/')] = array
  _write_tensorflow(folder / 'model.ckpt', arrays)
  (folder / 'checkpoint').write_text('model_checkpoint_path: "model.ckpt"\n')
  hparams = {'n_vocab': model.config.vocab_size, 'n_ctx': 64, 'n_embd': 32}
  (folder / 'hparams.json').write_text(
    json.dumps(hparams | {'n_head': 2, 'n_layer': 2})
  )
  shutil.copy(source / 'vocab.json', folder / 'encoder.json')
  shutil.copy(source / 'merges.txt', folder / 'vocab.bpe')


def release_gpt(folder, model, source):
  """Writes a GPT as openai/finetune-transformer-lm does: ten parts of all."""
  state = {
    name: tensor.numpy()
    for name, tensor in model.transformer.state_dict().items()
  }
  arrays = [state['positions_embed.weight'], state['tokens_embed.weight']]
  for i in range(model.config.n_layer):
    for name in 'attn.c_attn attn.c_proj ln_1 mlp.c_fc mlp.c_proj ln_2'.split():
      weight = state[f'h.{i}.{name}.weight']
      arrays.append(weight if name.startswith('ln') else weight[None])
      arrays.append(state[f'h.{i}.{name}.bias'])
  (folder / 'params_shapes.json').write_text(
    json.dumps([array.shape for array in arrays])
  )
  flat = np.concatenate([array.ravel() for array in arrays])
  for i, part in enumerate(np.array_split(flat, 10)):
    np.save(folder / f'params_{i}.npy', part)
  shutil.copy(source / 'vocab.json', folder / 'encoder_bpe_40000.json')
  shutil.copy(source / 'merges.txt', folder / 'vocab_40000.bpe')


def _write_tensorflow(prefix, arrays):
  import tensorflow

  tensorflow.raw_ops.SaveV2(
    prefix=str(prefix),
    tensor_names=list(arrays),
    shape_and_slices=[''] * len(arrays),
    tensors=[tensorflow.constant(array) for array in arrays.values()],
  )
