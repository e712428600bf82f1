"""Small published models of odd sizes, that the tests of this folder share."""

import json

import jax
import numpy as np
import pytest

from models import bert, gpt
from models.pretrained import strict, weights

BERT = dict(
  vocab_size=131,
  num_layers=3,
  embed_dim=36,
  num_heads=3,
  mlp_dim=50,
  max_length=19,
  num_token_types=3,
  gelu='erf',
)
GPT = dict(
  vocab_size=133,
  num_layers=2,
  embed_dim=64,
  num_heads=1,
  mlp_dim=70,
  max_length=17,
)
# Hugging Face's class -> heads of ours, and an extra one with its classes.
BERT_CLASSES = {
  'BertForPreTraining': (('pooler', 'mlm', 'nsp'), None),
  'BertForMaskedLM': (('mlm',), None),
  'BertModel': (('pooler',), None),
  'BertForSequenceClassification': (('pooler',), ('classifier', 5)),
  'BertForTokenClassification': ((), ('token_classifier', 7)),
  'BertForQuestionAnswering': ((), ('span_classifier', 2)),
}


def in_memory(arrays):
  """Returns entries of arrays, as a reader of files gives them."""
  return {
    name: strict.Entry(array.shape, array.dtype, lambda array=array: array)
    for name, array in arrays.items()
  }


def draw(model, extra=None):
  """Random parameters of a model, and of an extra head (name, K)."""
  shapes = {path: leaf.shape for path, leaf in weights.shapes_of(model).items()}
  if extra:
    name, K = extra
    shapes |= {f'{name}/kernel': (model.embed_dim, K), f'{name}/bias': (K,)}
  rng = np.random.default_rng(0)
  params = {}
  for path, shape in shapes.items():
    leaf = 0.3 * rng.normal(size=shape).astype(np.float32)
    if path in weights.VOCABULARY:
      leaf[model.vocab_size :] = 0
    strict.put(params, path.split('/'), leaf)
  return params


def make_bert(name, **fields):
  """The model of a class, and its parameters."""
  heads, extra = BERT_CLASSES[name]
  model = bert.Bert(**BERT, heads=heads, **fields)
  return model, draw(model, extra)


def make_gpt(name):
  sizes = GPT if name == 'gpt2' else GPT | {'mlp_dim': 4 * GPT['embed_dim']}
  model = gpt.Gpt(**sizes, pre_norm=name == 'gpt2')
  return model, draw(model)


def assert_same(found, expected):
  """Bit for bit, and float32."""
  assert jax.tree.structure(found) == jax.tree.structure(expected)
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype('f4')}


# --- Files as others write them


def save_checkpoint(prefix, arrays):
  """Writes a checkpoint by TensorFlow's own writer."""
  tf = pytest.importorskip('tensorflow')
  tf.raw_ops.SaveV2(
    prefix=str(prefix),
    tensor_names=list(arrays),
    shape_and_slices=[''] * len(arrays),
    tensors=[tf.constant(array) for array in arrays.values()],
  )


def bert_arrays(model, params):
  """The variables of modeling.py and run_pretraining.py, written out."""
  D = model.embed_dim
  V = model.vocab_size
  embeddings = params['embeddings']
  arrays = {
    'bert/embeddings/word_embeddings': embeddings['tokens']['embedding'][:V],
    'bert/embeddings/position_embeddings': embeddings['positions'],
    'bert/embeddings/token_type_embeddings': embeddings['token_types'],
    'bert/embeddings/LayerNorm/gamma': embeddings['layer_norm']['scale'],
    'bert/embeddings/LayerNorm/beta': embeddings['layer_norm']['bias'],
    'bert/pooler/dense/kernel': params['pooler']['kernel'],
    'bert/pooler/dense/bias': params['pooler']['bias'],
  }
  layers = params['layers']
  for i in range(model.num_layers):
    where = f'bert/encoder/layer_{i}'
    attention = layers['attention']
    for j, name in enumerate(('query', 'key', 'value')):
      qkv = attention['qkv']
      here = f'{where}/attention/self/{name}'
      arrays[f'{here}/kernel'] = qkv['kernel'][i][:, j].reshape(D, D)
      arrays[f'{here}/bias'] = qkv['bias'][i][j].reshape(D)
    for theirs, ours in (
      ('attention/output/dense', attention['out']),
      ('intermediate/dense', layers['mlp']['in']),
      ('output/dense', layers['mlp']['out']),
    ):
      kernel = ours['kernel'][i]
      arrays[f'{where}/{theirs}/kernel'] = kernel.reshape(-1, kernel.shape[-1])
      arrays[f'{where}/{theirs}/bias'] = ours['bias'][i]
    for theirs, ours in (
      ('attention/output/LayerNorm', layers['attention_norm']),
      ('output/LayerNorm', layers['mlp_norm']),
    ):
      arrays[f'{where}/{theirs}/gamma'] = ours['scale'][i]
      arrays[f'{where}/{theirs}/beta'] = ours['bias'][i]
  if 'mlm' in params:
    head, mlm = 'cls/predictions', params['mlm']
    arrays |= {
      f'{head}/output_bias': mlm['bias'][:V],
      f'{head}/transform/dense/kernel': mlm['dense']['kernel'],
      f'{head}/transform/dense/bias': mlm['dense']['bias'],
      f'{head}/transform/LayerNorm/gamma': mlm['layer_norm']['scale'],
      f'{head}/transform/LayerNorm/beta': mlm['layer_norm']['bias'],
      'cls/seq_relationship/output_weights': params['nsp']['kernel'].T,
      'cls/seq_relationship/output_bias': params['nsp']['bias'],
    }
  for name, theirs in (('classifier', ''), ('span_classifier', 'cls/squad/')):
    if name in params:
      arrays[f'{theirs}output_weights'] = params[name]['kernel'].T
      arrays[f'{theirs}output_bias'] = params[name]['bias']
  return arrays


def write_bert_config(folder, model):
  keys = {
    'vocab_size': 'vocab_size',
    'hidden_size': 'embed_dim',
    'num_hidden_layers': 'num_layers',
    'num_attention_heads': 'num_heads',
    'intermediate_size': 'mlp_dim',
    'max_position_embeddings': 'max_length',
    'type_vocab_size': 'num_token_types',
    'hidden_dropout_prob': 'dropout_rate',
    'attention_probs_dropout_prob': 'attention_dropout_rate',
  }
  config = {key: getattr(model, field) for key, field in keys.items()}
  config |= {'hidden_act': 'gelu', 'initializer_range': 0.02}
  (folder / 'bert_config.json').write_text(json.dumps(config))


def openai_arrays(model, params):
  """Name -> array in GPT's order; names and shapes of GPT-2."""
  arrays = {
    'model/wpe': params['embeddings']['positions'],
    'model/wte': params['embeddings']['tokens']['embedding'][
      : model.vocab_size
    ],
  }
  layers = params['layers']
  D = model.embed_dim
  for i in range(model.num_layers):
    for name, ours, shape in (
      ('attn/c_attn', layers['attention']['qkv'], (D, 3 * D)),
      ('attn/c_proj', layers['attention']['out'], (D, D)),
      ('ln_1', layers['attention_norm'], None),
      ('mlp/c_fc', layers['mlp']['in'], (D, model.mlp_dim)),
      ('mlp/c_proj', layers['mlp']['out'], (model.mlp_dim, D)),
      ('ln_2', layers['mlp_norm'], None),
    ):
      if shape:
        kernel = ours['kernel'][i].reshape(1, *shape)
        arrays[f'model/h{i}/{name}/w'] = kernel
      else:
        arrays[f'model/h{i}/{name}/g'] = ours['scale'][i]
      arrays[f'model/h{i}/{name}/b'] = ours['bias'][i].reshape(-1)
  if model.pre_norm:
    arrays['model/ln_f/g'] = params['final_norm']['scale']
    arrays['model/ln_f/b'] = params['final_norm']['bias']
  return arrays


def write_openai(folder, arrays, num_files=10):
  flat = np.concatenate([array.ravel() for array in arrays.values()])
  for i, part in enumerate(np.array_split(flat, num_files)):
    np.save(folder / f'params_{i}.npy', part)
  (folder / 'params_shapes.json').write_text(
    json.dumps([array.shape for array in arrays.values()])
  )


# --- The classes of transformers

B, T = 3, 11  # of a batch


def open_theirs(transformers, name, folder):
  theirs, told = getattr(transformers, name).from_pretrained(
    folder, output_loading_info=True, attn_implementation='eager'
  )
  told = {key: told[key] for key in told if 'key' in key}
  assert not any(told.values()) and len(told) >= 3, told
  return theirs.eval()


def make_inputs():
  rng = np.random.default_rng(1)
  tokens = rng.integers(0, 131, (B, T))
  mask = np.arange(T) < np.array([[T], [4], [7]])
  types = rng.integers(0, 3, (B, T))
  return tokens, mask, types, np.tile(np.arange(T), (B, 1))


def their_outputs(torch, theirs, inputs):
  names = ('input_ids', 'attention_mask', 'token_type_ids', 'position_ids')
  given = dict(zip(names, inputs, strict=True))
  if not theirs.config.model_type == 'bert':
    del given['token_type_ids']
  given = {name: torch.tensor(np.int64(x)) for name, x in given.items()}
  if theirs.config.model_type != 'bert':
    given['use_cache'] = False  # no keys and values among the outputs
  with torch.no_grad():
    outputs = theirs(**given)
  return {name: value.numpy() for name, value in outputs.items()}
