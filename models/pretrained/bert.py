"""BERT's weights under TensorFlow's and Hugging Face's names, read and written.

Linear kernels are [inputs, outputs] here and in google-research/bert's files,
except heads there; they are [outputs, inputs], as all are at Hugging Face.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from models import bert
from models.pretrained import config_files, strict, tensorflow_file
from models.pretrained.config_files import SHARE, SMALL
from models.pretrained.strict import Entry, Piece
from models.pretrained.weights import VOCABULARY, Weights

NAMES = {  # parameter -> TensorFlow's name
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
  # Of a softmax of its own table, which Hugging Face's files alone may have.
  'mlm/table/embedding': 'cls/predictions/decoder/output_weights',
  'nsp/kernel': 'cls/seq_relationship/output_weights',
  'nsp/bias': 'cls/seq_relationship/output_bias',
  # Of fine-tuned models; classifiers of texts and of tokens share their names.
  'classifier/kernel': 'output_weights',
  'classifier/bias': 'output_bias',
  'token_classifier/kernel': 'output_weights',
  'token_classifier/bias': 'output_bias',
  'span_classifier/kernel': 'cls/squad/output_weights',
  'span_classifier/bias': 'cls/squad/output_bias',
}
TABLES = (*tuple(NAMES)[:3], 'mlm/table/embedding')
# Names in a layer, below bert/encoder/layer_0 and so on; stacked here.
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
QKV = 'layers/attention/qkv/'  # three arrays in the files
# Parts of TensorFlow's names -> Hugging Face's, in this order.
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
# Parts of names in early files -> today's.
OLD_PARTS = {'Norm.gamma': 'Norm.weight', 'Norm.beta': 'Norm.bias'}
BIAS, ITS_TWIN = 'cls.predictions.bias', 'cls.predictions.decoder.bias'
TWINS = {  # array -> its second name in some files
  'embeddings.word_embeddings.weight': 'cls.predictions.decoder.weight',
  BIAS: ITS_TWIN,
}
BUFFERS = 'position_ids'  # 0, 1, 2 ..., saved by old versions
# Prefixes of known names; other heads are set aside.
HUGGING_FACE_PLACES = (
  'embeddings.',
  'encoder.',
  'pooler.',
  'cls.',
  'classifier.',
  'qa_outputs.',
)
TENSORFLOW_PLACES = ('bert/', 'cls/', 'output_')

FIELDS = {  # key of a config -> (field, kind), see `config_files.read_fields`
  'vocab_size': ('vocab_size', 'a count'),
  'hidden_size': ('embed_dim', 'a count'),
  'num_hidden_layers': ('num_layers', 'a count of layers'),
  'num_attention_heads': ('num_heads', 'a count'),
  'intermediate_size': ('mlp_dim', 'a count'),
  'max_position_embeddings': ('max_length', 'a count'),
  'type_vocab_size': ('num_token_types', 'a count'),
  'layer_norm_eps': ('layer_norm_epsilon', SMALL),
  'hidden_dropout_prob': ('dropout_rate', SHARE),
  'attention_probs_dropout_prob': ('attention_dropout_rate', SHARE),
}
# Keys that configs may leave out (transformers, configuration_bert.py).
DEFAULTS = {
  'layer_norm_eps': 1e-12,
  'hidden_dropout_prob': 0.1,
  'attention_probs_dropout_prob': 0.1,
}
ALWAYS = {  # options of transformers that have one value here
  'position_embedding_type': 'absolute',
  'is_decoder': False,
  'add_cross_attention': False,
  'quantization_config': None,
}
GELU = {
  'gelu': 'erf',
  'gelu_new': 'tanh',
  'gelu_pytorch_tanh': 'tanh',
  'relu': 'relu',
}
ARCHITECTURES = {  # heads beside the encoder in Hugging Face's classes
  'BertForPreTraining': ('mlm', 'nsp', 'pooler'),
  'BertForMaskedLM': ('mlm',),
  'BertForNextSentencePrediction': ('nsp', 'pooler'),
  'BertModel': ('pooler',),
  'BertForSequenceClassification': ('classifier', 'pooler'),
  'BertForTokenClassification': ('token_classifier',),
  'BertForQuestionAnswering': ('span_classifier',),
}


def from_hugging_face(
  folder: epath.Path,
  config: Mapping[str, Any],
  entries: Mapping[str, Entry],
  num_token_types: int | None = None,
) -> Weights:
  """Opens a BERT of Hugging Face: its config.json and its arrays.

  `num_token_types` replaces the config's; 0 is of a DistilBERT.
  """

  def name_of(name: str) -> str | None:
    if name.endswith(BUFFERS):
      return None
    name = name.removeprefix(PREFIX)
    for old, new in OLD_PARTS.items():
      name = name.replace(old, new)
    return name if name.startswith(HUGGING_FACE_PLACES) else None

  renamed, set_aside, problems = strict.rename(entries, name_of)
  is_tied = config.get('tie_word_embeddings') is not False
  if is_tied:
    for name, twin in TWINS.items():
      strict.tie(renamed, name, twin)
  elif ITS_TWIN in renamed:  # the classes compute with it alone
    renamed[BIAS] = renamed.pop(ITS_TWIN)
  weights = Weights(folder, 'Hugging Face', 'bert', set_aside=set_aside)
  return _open(
    weights,
    config,
    renamed,
    problems,
    num_token_types=num_token_types,
    is_tied=is_tied,
  )


def from_tensorflow(
  folder: epath.Path, config: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Weights:
  """Opens a BERT of google-research/bert: bert_config.json and a checkpoint."""

  def name_of(name: str) -> str | None:
    is_slot = tensorflow_file.OPTIMIZER.fullmatch(name)
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
  weights = Weights(
    folder, 'TensorFlow', 'bert', set_aside=set_aside, notes=notes
  )
  return _open(weights, config, renamed, problems)


def to_hugging_face(
  params: Mapping, model: bert.Bert
) -> tuple[str, dict[str, np.ndarray]]:
  """Returns Hugging Face's class name, and name -> array in its files.

  A pooler that the class does not read is left out; without heads it is
  BertModel, which draws its pooler. Raises ValueError for other heads.
  """
  shapes = strict.flatten(params)
  tops = {path.partition('/')[0] for path in shapes} - {'embeddings', 'layers'}
  classes = {frozenset(heads): name for name, heads in ARCHITECTURES.items()}
  classes[frozenset()] = 'BertModel'
  heads = frozenset(tops)
  if heads not in classes:
    heads -= {'pooler'}
    shapes = {
      path: leaf
      for path, leaf in shapes.items()
      if not path.startswith('pooler/')
    }
  if heads not in classes:
    known = ', '.join(' + '.join(heads) for heads in ARCHITECTURES.values())
    raise ValueError(
      'no class of Hugging Face has the heads'
      f' {" + ".join(sorted(heads))}: leave some out, there are {known}'
    )
  arrays = strict.scatter(params, _pieces(model, shapes, True))
  if not model.num_token_types:  # the classes have a table: of one row, 0
    name = _hugging_face_name(NAMES['embeddings/token_types'])
    arrays[name] = np.zeros((1, model.embed_dim), np.float32)
  if 'mlm' in heads and not model.tied:
    arrays[ITS_TWIN] = arrays[BIAS]
  if not heads:
    return classes[heads], arrays
  encoder = ('embeddings.', 'encoder.', 'pooler.')
  return classes[heads], {
    PREFIX + name if name.startswith(encoder) else name: array
    for name, array in arrays.items()
  }


def to_config(model: bert.Bert) -> dict[str, Any]:
  """Returns the Hugging Face config of a model."""
  gelus = {form: name for name, form in reversed(GELU.items())}
  sizes = {key: getattr(model, field) for key, (field, _) in FIELDS.items()}
  sizes['type_vocab_size'] = max(sizes['type_vocab_size'], 1)
  tying = {} if model.tied else {'tie_word_embeddings': False}
  kind = {'model_type': 'bert', 'hidden_act': gelus[model.gelu]}
  return kind | sizes | tying


def _open(
  weights: Weights,
  config: Mapping[str, Any],
  entries: Mapping[str, Entry],
  problems: list[str],
  *,
  num_token_types: int | None = None,
  is_tied: bool = True,
) -> Weights:
  """Adds the model of a config, with the heads that the arrays have."""
  outputs_first = weights.kind == 'Hugging Face'

  def entry_of(path: str) -> Entry | None:
    name = NAMES[path]
    return entries.get(_hugging_face_name(name) if outputs_first else name)

  heads = [head for head in bert.HEADS if entry_of(f'{head}/bias')]
  if 'nsp' in heads and 'pooler' not in heads:
    heads.insert(0, 'pooler')  # reported as missing below
  extra = []
  if entry_of('classifier/kernel'):
    of_tokens = config.get('architectures') == ['BertForTokenClassification']
    sequence = 'pooler' in heads and not of_tokens
    extra.append('classifier' if sequence else 'token_classifier')
  if entry_of('span_classifier/kernel'):
    extra.append('span_classifier')
  labels = config.get('id2label')
  if extra and isinstance(labels, dict):
    weights = weights._replace(labels=labels)
  table = {
    key: row
    for key, row in FIELDS.items()
    if row[0] != 'num_token_types' or num_token_types is None
  }
  fields, config_problems = config_files.read_transformer(
    DEFAULTS | dict(config), table, 'hidden_act', GELU, ALWAYS
  )
  model, head_shapes = None, {}
  if fields is not None:
    if num_token_types is not None:
      fields['num_token_types'] = num_token_types
    is_tied |= 'mlm' not in heads
    model = bert.Bert(heads=tuple(heads), tied=is_tied, **fields)
    for head in extra:
      K, *_ = *entry_of(f'{head}/kernel').shape, 1
      for name, shape in (('kernel', (model.embed_dim, K)), ('bias', (K,))):
        leaf = jax.ShapeDtypeStruct(shape, jnp.float32)
        head_shapes[f'{head}/{name}'] = leaf
  return weights._replace(heads=tuple(extra)).of_model(
    model,
    entries,
    lambda shapes: _pieces(model, shapes, outputs_first),
    [*config_problems, *problems],
    head_shapes,
  )


def _hugging_face_name(name: str) -> str:
  for pattern, replacement in HUGGING_FACE_PARTS:
    name = re.sub(pattern, replacement, name)
  return name


def _pieces(
  model: bert.Bert, shapes: Mapping[str, Any], outputs_first: bool
) -> Iterator[Piece]:
  """Yields the pieces of all parameters, at Hugging Face with outputs first."""
  for path, leaf in shapes.items():
    for name, place, shape in _parts(model, path, leaf.shape):
      num_inputs = 0
      if path.endswith('kernel'):
        inputs = 2 if path == 'layers/attention/out/kernel' else 1
        shape = math.prod(shape[:inputs]), math.prod(shape[inputs:])
        if outputs_first or name.endswith('output_weights'):
          shape, num_inputs = shape[::-1], inputs
      elif path not in TABLES:
        shape = (math.prod(shape),)
      if outputs_first:
        name = _hugging_face_name(name)
      yield Piece(name, path, shape, place=place, num_inputs=num_inputs)


def _parts(
  model: bert.Bert, path: str, shape: tuple[int, ...]
) -> Iterator[tuple[str, tuple, tuple[int, ...]]]:
  """Yields (TensorFlow's name, place, shape) of each part of a parameter."""
  if path in VOCABULARY:
    V = model.vocab_size
    yield NAMES[path], (slice(V),), (V, *shape[1:])
    return
  if path in NAMES:
    yield NAMES[path], (Ellipsis,), shape
    return
  for i in range(model.num_layers):
    layer = f'bert/encoder/layer_{i}'
    if path in LAYER_NAMES:
      yield f'{layer}/{LAYER_NAMES[path]}', (i,), shape[1:]
      continue
    last = path.removeprefix(QKV)
    inputs = (slice(None),) if last == 'kernel' else ()  # [L, D, 3, N, H]
    for j, part in enumerate(('query', 'key', 'value')):
      name = f'{layer}/attention/self/{part}/{last}'
      yield name, (i, *inputs, j), shape[1 : 1 + len(inputs)] + shape[-2:]
