"""BERT's weights under TensorFlow's and Hugging Face's names, to ours and back.

Linear kernels are [inputs, outputs] in google-research/bert's files as in ours,
but for those of the heads; in Hugging Face's they are [outputs, inputs].
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from models import bert
from models.pretrained import config_files, strict, weight_files
from models.pretrained.strict import Entry, Piece, Published

# Ours -> TensorFlow's.
NAMES = {
  'embeddings/tokens/embedding': 'bert/embeddings/word_embeddings',
  'embeddings/positions': 'bert/embeddings/position_embeddings',
  'embeddings/token_types': 'bert/embeddings/token_type_embeddings',
  'embeddings/layer_norm/scale': 'bert/embeddings/LayerNorm/gamma',
  'embeddings/layer_norm/bias': 'bert/embeddings/LayerNorm/beta',
  'pooler/kernel': 'bert/pooler/dense/kernel',
  'pooler/bias': 'bert/pooler/dense/bias',
  'mlm/dense/kernel': 'cls/predictions/transform/dense/kernel',
  'mlm/dense/bias': 'cls/predictions/transform/dense/bias',
  'mlm/layer_norm/scale': 'cls/predictions/transform/LayerNorm/gamma',
  'mlm/layer_norm/bias': 'cls/predictions/transform/LayerNorm/beta',
  'mlm/bias': 'cls/predictions/output_bias',
  'nsp/kernel': 'cls/seq_relationship/output_weights',
  'nsp/bias': 'cls/seq_relationship/output_bias',
  # Of models that were fine-tuned; what a classifier is of, no name tells.
  'classifier/kernel': 'output_weights',
  'classifier/bias': 'output_bias',
  'token_classifier/kernel': 'output_weights',
  'token_classifier/bias': 'output_bias',
  'span_classifier/kernel': 'cls/squad/output_weights',
  'span_classifier/bias': 'cls/squad/output_bias',
}
TABLES = tuple(NAMES)[:3]
# A layer's, in bert/encoder/layer_0 and so on there, stacked here.
LAYER_NAMES = {
  'layers/attention/out/kernel': 'attention/output/dense/kernel',
  'layers/attention/out/bias': 'attention/output/dense/bias',
  'layers/attention_norm/scale': 'attention/output/LayerNorm/gamma',
  'layers/attention_norm/bias': 'attention/output/LayerNorm/beta',
  'layers/mlp/in/kernel': 'intermediate/dense/kernel',
  'layers/mlp/in/bias': 'intermediate/dense/bias',
  'layers/mlp/out/kernel': 'output/dense/kernel',
  'layers/mlp/out/bias': 'output/dense/bias',
  'layers/mlp_norm/scale': 'output/LayerNorm/gamma',
  'layers/mlp_norm/bias': 'output/LayerNorm/beta',
}
QKV = 'layers/attention/qkv/'  # three of theirs
# TensorFlow's, parts of a name -> Hugging Face's, in this order.
HUGGING_FACE_PARTS = (
  (r'^bert/', ''),
  (r'^output_', 'classifier/output_'),
  (r'^cls/squad/', 'qa_outputs/'),
  (r'/layer_', '/layer/'),
  (r'/(kernel|gamma|output_weights)$', '/weight'),
  (r'/(beta|output_bias)$', '/bias'),
  (r'_embeddings$', '_embeddings/weight'),
  (r'/', '.'),
)
PREFIX = 'bert.'  # before the encoder's names in most of Hugging Face's files
OLD_PARTS = (
  ('LayerNorm.gamma', 'LayerNorm.weight'),
  ('LayerNorm.beta', 'LayerNorm.bias'),
)
# Array -> the other name of it that some files hold too.
TWINS = {
  'embeddings.word_embeddings.weight': 'cls.predictions.decoder.weight',
  'cls.predictions.bias': 'cls.predictions.decoder.bias',
}
BUFFERS = ('position_ids',)  # 0, 1, 2 ..., saved by old versions
# What begins the names of all that is known; other heads are set aside.
HUGGING_FACE_PLACES = (
  'embeddings.',
  'encoder.',
  'pooler.',
  'cls.',
  'classifier.',
  'qa_outputs.',
)
TENSORFLOW_PLACES = ('bert/', 'cls/', 'output_')

# Their sizes -> our fields, and what they must be.
FIELDS = {
  'vocab_size': ('vocab_size', 'a count'),
  'hidden_size': ('embed_dim', 'a count'),
  'num_hidden_layers': ('num_layers', 'a count of layers'),
  'num_attention_heads': ('num_heads', 'a count'),
  'intermediate_size': ('mlp_dim', 'a count'),
  'max_position_embeddings': ('max_length', 'a count'),
  'type_vocab_size': ('num_token_types', 'a count'),
  'layer_norm_eps': ('layer_norm_epsilon', 'a number below 1, such as 1e-5'),
  'hidden_dropout_prob': ('dropout_rate', 'a share from 0 to below 1'),
  'attention_probs_dropout_prob': (
    'attention_dropout_rate',
    'a share from 0 to below 1',
  ),
}
# What their configs may leave out (transformers, configuration_bert.py).
DEFAULTS = {
  'layer_norm_eps': 1e-12,
  'hidden_dropout_prob': 0.1,
  'attention_probs_dropout_prob': 0.1,
}
# What the code there can be told to do and ours does not.
ALWAYS = {
  'position_embedding_type': 'absolute',
  'is_decoder': False,
  'add_cross_attention': False,
  'quantization_config': None,
}
GELU = {'gelu': 'erf', 'gelu_new': 'tanh', 'gelu_pytorch_tanh': 'tanh'}
# Heads beside the encoder in Hugging Face's classes.
ARCHITECTURES = {
  'BertForPreTraining': ('mlm', 'nsp', 'pooler'),
  'BertForMaskedLM': ('mlm',),
  'BertForNextSentencePrediction': ('nsp', 'pooler'),
  'BertModel': ('pooler',),
  'BertForSequenceClassification': ('classifier', 'pooler'),
  'BertForTokenClassification': ('token_classifier',),
  'BertForQuestionAnswering': ('span_classifier',),
}


def from_hugging_face(
  folder: epath.Path, config: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Published:
  """Opens a BERT of Hugging Face's; see `_open`.

  Args:
    folder: where it lies.
    config: what config.json holds.
    entries: of the files of weights.
  """

  def name_of(name: str) -> str | None:
    if name.endswith(BUFFERS):
      return None
    # PyTorch's DataParallel adds the first.
    name = name.removeprefix('module.').removeprefix(PREFIX)
    for old, new in OLD_PARTS:
      name = name.replace(old, new)
    return name if name.startswith(HUGGING_FACE_PLACES) else None

  renamed, set_aside, problems = strict.rename(entries, name_of)
  has_softmax = any(name.startswith('cls.predictions.') for name in renamed)
  for name, twin in TWINS.items():
    strict.tie(renamed, name, twin)
  if has_softmax and config.get('tie_word_embeddings') is False:
    problems.append('tie_word_embeddings is False, only True is known here')
  return _open(
    Published(folder, 'Hugging Face', 'bert', set_aside=set_aside),
    config,
    renamed,
    problems,
  )


def from_tensorflow(
  folder: epath.Path, config: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Published:
  """Opens a BERT of google-research/bert; see `_open`.

  Args:
    folder: where it lies.
    config: what bert_config.json holds.
    entries: of the checkpoint.
  """

  def name_of(name: str) -> str | None:
    is_slot = weight_files.OPTIMIZER.fullmatch(name)
    return None if is_slot or not name.startswith(TENSORFLOW_PLACES) else name

  renamed, set_aside, problems = strict.rename(entries, name_of)
  notes = {}
  if config.get('hidden_act') == 'gelu':
    notes['gelu'] = (
      'unknown, read as erf, as Hugging Face does; the program itself computed'
      ' the tanh approximation from 2019-02-07 on'
    )
  if NAMES['classifier/kernel'] in renamed:
    notes['output_weights'] = (
      'read as a classifier of whole inputs; one of tokens has the same name'
    )
  return _open(
    Published(folder, 'TensorFlow', 'bert', set_aside=set_aside, notes=notes),
    config,
    renamed,
    problems,
  )


def to_hugging_face(
  params: Mapping, model: bert.Bert
) -> tuple[str, dict[str, np.ndarray]]:
  """Returns the class there, and name -> array as it has them.

  A pooler that nothing in that class reads is left out. Without any head it is
  their BertModel, which makes up its pooler.

  Args:
    params: of `model`, unboxed, with or without an extra head.
    model: the model.

  Raises:
    ValueError: if no class there has these heads and no others.
  """
  shapes = strict.flatten(params)
  tops = sorted({path.split('/')[0] for path in shapes})
  heads = tuple(top for top in tops if top not in ('embeddings', 'layers'))
  architectures = {heads: name for name, heads in ARCHITECTURES.items()}
  architectures[()] = 'BertModel'
  if heads not in architectures:
    heads = tuple(head for head in heads if head != 'pooler')
    shapes = {
      path: leaf
      for path, leaf in shapes.items()
      if not path.startswith('pooler/')
    }
  if heads not in architectures:
    known = ', '.join(' + '.join(known) for known in architectures if known)
    raise ValueError(
      f'no class of Hugging Face has the heads {" + ".join(heads) or "none"}:'
      f' leave some out, there are {known}'
    )
  architecture = architectures[heads]
  arrays = strict.scatter(params, list(_pieces(model, shapes, True)))
  if architecture == 'BertModel':
    return architecture, arrays
  encoder = ('embeddings.', 'encoder.', 'pooler.')
  return architecture, {
    PREFIX + name if name.startswith(encoder) else name: array
    for name, array in arrays.items()
  }


def to_config(model: bert.Bert) -> dict[str, Any]:
  """Returns the config of Hugging Face's that describes a model."""
  gelus = {ours: theirs for theirs, ours in reversed(GELU.items())}
  sizes = {key: getattr(model, field) for key, (field, _) in FIELDS.items()}
  return {'model_type': 'bert', 'hidden_act': gelus[model.gelu]} | sizes


def _open(
  published: Published,
  config: Mapping[str, Any],
  entries: Mapping[str, Entry],
  problems: list[str],
) -> Published:
  """Adds the model, which the config describes, with the heads that are there.

  Args:
    published: what is known already.
    config: their sizes.
    entries: under their plain names.
    problems: that are known already.
  """
  outputs_first = published.kind == 'Hugging Face'

  def has(path: str) -> bool:
    return _name(path, outputs_first) in entries

  heads = [head for head in bert.HEADS if has(f'{head}/bias')]
  if 'nsp' in heads and 'pooler' not in heads:
    heads.insert(0, 'pooler')  # and is missed below
  extra = []
  if has('classifier/kernel'):
    of_tokens = config.get('architectures') == ['BertForTokenClassification']
    sequence = 'pooler' in heads and not of_tokens
    extra.append('classifier' if sequence else 'token_classifier')
  if has('span_classifier/kernel'):
    extra.append('span_classifier')
  labels = config.get('id2label')
  if extra and isinstance(labels, dict):
    published = dataclasses.replace(published, labels=labels)

  model, config_problems = _model(config, tuple(heads))
  problems = config_problems + problems
  shapes, pieces = {}, []
  if model is not None:
    shapes = _shapes(model)
    for head in extra:
      K, *_ = *entries[_name(f'{head}/kernel', outputs_first)].shape, 1
      shapes[f'{head}/kernel'] = _float32(model.embed_dim, K)
      shapes[f'{head}/bias'] = _float32(K)
    pieces = list(_pieces(model, shapes, outputs_first))
    problems += strict.misfits(entries, pieces)
  return dataclasses.replace(
    published,
    model=model,
    pieces=pieces,
    entries=entries,
    shapes=shapes,
    heads=tuple(extra),
    problems=tuple(problems),
  )


def _model(
  config: Mapping[str, Any], heads: tuple[str, ...]
) -> tuple[bert.Bert | None, list[str]]:
  """Returns the model of a config, None if it is not enough; and problems."""
  config = DEFAULTS | dict(config)
  fields, problems = config_files.read_fields(config, FIELDS)
  enough = not problems
  gelu, wrong = config_files.read_choice(config, 'hidden_act', GELU)
  problems += wrong + config_files.deviations(config, ALWAYS)
  if enough and fields['embed_dim'] % fields['num_heads']:
    problems.append(
      f'hidden_size is {fields["embed_dim"]}, expected a multiple of'
      f' num_attention_heads ({fields["num_heads"]})'
    )
    enough = False
  if not enough:
    return None, problems
  return bert.Bert(gelu=gelu or 'erf', heads=heads, **fields), problems


def _shapes(model: bert.Bert) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns 'path/of/leaf' -> shape of all arrays of a model."""
  ids = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  mask = jax.ShapeDtypeStruct((1, 1), bool)
  return strict.shapes_of(model, ids, mask, ids, ids, ids, train=False)


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
  return jax.ShapeDtypeStruct(shape, jnp.float32)


def _name(path: str, outputs_first: bool, layer: int = 0) -> str:
  """Returns their name of an array, or of a part of one.

  Args:
    path: of ours; for queries, keys and values with their name before the last.
    outputs_first: Hugging Face's, else TensorFlow's.
    layer: which layer's.
  """
  if path in NAMES:
    name = NAMES[path]
  elif path in LAYER_NAMES:
    name = f'bert/encoder/layer_{layer}/{LAYER_NAMES[path]}'
  else:
    part = path.removeprefix(QKV)
    name = f'bert/encoder/layer_{layer}/attention/self/{part}'
  if outputs_first:
    for pattern, replacement in HUGGING_FACE_PARTS:
      name = re.sub(pattern, replacement, name)
  return name


def _pieces(
  model: bert.Bert, shapes: Mapping[str, Any], outputs_first: bool
) -> Iterator[Piece]:
  """Yields how the arrays here and there correspond, all of both."""
  for path, place, shape, name in _parts(model, shapes, outputs_first):
    if not path.endswith('kernel'):
      shape = shape if path in TABLES else (math.prod(shape),)
      yield Piece(name, path, shape, place=place)
      continue
    num_inputs = 2 if path == 'layers/attention/out/kernel' else 1
    matrix = math.prod(shape[:num_inputs]), math.prod(shape[num_inputs:])
    if outputs_first or name.endswith('output_weights'):
      yield Piece(name, path, matrix[::-1], place=place, num_inputs=num_inputs)
    else:
      yield Piece(name, path, matrix, place=place)


def _parts(
  model: bert.Bert, shapes: Mapping[str, Any], outputs_first: bool
) -> Iterator[tuple[str, tuple, tuple[int, ...], str]]:
  """Yields (path, place, the place's shape, their name) of each piece."""
  V = model.vocab_size
  for path, leaf in shapes.items():
    if path.startswith(QKV):
      last = path.removeprefix(QKV)
      inputs = (slice(None),) if last == 'kernel' else ()  # [L, D, 3, N, H]
      shape = leaf.shape[1 : 1 + len(inputs)] + leaf.shape[-2:]
      for i in range(model.num_layers):
        for j, part in enumerate(('query', 'key', 'value')):
          name = _name(f'{QKV}{part}/{last}', outputs_first, i)
          yield path, (i, *inputs, j), shape, name
    elif path in LAYER_NAMES:
      for i in range(model.num_layers):
        yield path, (i,), leaf.shape[1:], _name(path, outputs_first, i)
    elif path in ('embeddings/tokens/embedding', 'mlm/bias'):  # padded here
      shape = (V, *leaf.shape[1:])
      yield path, (slice(V),), shape, _name(path, outputs_first)
    else:
      yield path, (Ellipsis,), leaf.shape, _name(path, outputs_first)
