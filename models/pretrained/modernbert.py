"""ModernBERT's weights under Hugging Face's names, read and written.

Warner et al. 2024, "Smarter, Better, Faster, Longer". The embeddings' norm is
that of layer 0, which has none of its own: the row of `attention_norm` for it
is in no file. One dense layer and norm stand before the softmax and before the
classifier of texts; they are `mlm` and `pooler` here.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from models import bert
from models.pretrained import config_files, strict
from models.pretrained.config_files import SHARE, SMALL
from models.pretrained.strict import Entry, Piece
from models.pretrained.weights import VOCABULARY, Weights

MODEL_TYPE = 'modernbert'
NAMES = {  # parameter -> name, without the prefix of the encoder's
  'embeddings/tokens/embedding': 'embeddings.tok_embeddings.weight',
  'embeddings/layer_norm/scale': 'embeddings.norm.weight',
  'final_norm/scale': 'final_norm.weight',
  'mlm/dense/kernel': 'head.dense.weight',
  'mlm/layer_norm/scale': 'head.norm.weight',
  'mlm/table/embedding': 'decoder.weight',
  'mlm/bias': 'decoder.bias',
  'pooler/kernel': 'head.dense.weight',
  'pooler_norm/scale': 'head.norm.weight',
  'classifier/kernel': 'classifier.weight',
  'classifier/bias': 'classifier.bias',
}
# Parameter -> (name below layers.N, number of axes of inputs).
LAYER_NAMES = {
  'layers/attention_norm/scale': ('attn_norm.weight', 0),
  'layers/attention/qkv/kernel': ('attn.Wqkv.weight', 1),
  'layers/attention/out/kernel': ('attn.Wo.weight', 2),
  'layers/mlp_norm/scale': ('mlp_norm.weight', 0),
  'layers/mlp/in/kernel': ('mlp.Wi.weight', 1),
  'layers/mlp/out/kernel': ('mlp.Wo.weight', 1),
}
PREFIX = 'model.'  # before the encoder's names in files with a head
ENCODER = ('embeddings.', 'layers.', 'final_norm.')
CLASSIFIER = 'ModernBertForSequenceClassification'
ARCHITECTURES = {  # class -> heads beside the encoder
  'ModernBertForMaskedLM': ('mlm',),
  CLASSIFIER: ('pooler', 'classifier'),
  'ModernBertModel': (),
}
FIELDS = {  # key of a config -> (field, kind), see `config_files.read_fields`
  'vocab_size': ('vocab_size', 'a count'),
  'hidden_size': ('embed_dim', 'a count'),
  'num_hidden_layers': ('num_layers', 'a count of layers'),
  'num_attention_heads': ('num_heads', 'a count'),
  'intermediate_size': ('mlp_dim', 'a count'),
  'max_position_embeddings': ('max_length', 'a count'),
  'norm_eps': ('layer_norm_epsilon', SMALL),
  'mlp_dropout': ('dropout_rate', SHARE),
  'attention_dropout': ('attention_dropout_rate', SHARE),
  'global_attn_every_n_layers': ('global_every', 'a count'),
  'global_rope_theta': ('rotary_base', 'a positive number'),
  'local_rope_theta': ('local_rotary_base', 'a positive number'),
}
# Keys that configs may leave out (transformers, configuration_modernbert.py).
DEFAULTS = {
  'norm_eps': 1e-5,
  'mlp_dropout': 0.0,
  'attention_dropout': 0.0,
  'global_attn_every_n_layers': 3,
  'global_rope_theta': 160_000.0,
  'local_rope_theta': 10_000.0,
  'local_attention': 128,
  'hidden_activation': 'gelu',
  'classifier_activation': 'gelu',
  'classifier_pooling': 'cls',
  'tie_word_embeddings': True,
}
ALWAYS = {  # options of transformers that have one value here
  'norm_bias': False,
  'attention_bias': False,
  'mlp_bias': False,
  'decoder_bias': True,
  'classifier_bias': False,
  'quantization_config': None,
}
POOLS = {'cls': 'first', 'mean': 'mean'}
GELU = {
  'gelu': 'erf',
  'gelu_new': 'tanh',
  'gelu_pytorch_tanh': 'tanh',
  'relu': 'relu',
}
# Fields of a BERT -> their values here; BERT's own are those of `Bert`.
FORM = {'norm': 'pre', 'biases': False, 'gated': True, 'positions': 'rotary'}
# Kinds of layers from version 5 of transformers on.
GLOBAL, LOCAL = 'full_attention', 'sliding_attention'


def from_hugging_face(
  folder: epath.Path, config: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Weights:
  """Opens a ModernBERT of Hugging Face: its config.json and its arrays."""
  config, problems = _older(DEFAULTS | dict(config))
  is_classifier = config.get('architectures') == [CLASSIFIER]

  def name_of(name: str) -> str | None:
    known = (*ENCODER, 'head.', 'decoder.')
    known += ('classifier.',) * is_classifier
    return name if name.startswith(known) else None

  renamed, set_aside, twice = strict.rename(entries, name_of)
  is_tied = config['tie_word_embeddings'] is not False
  if is_tied:  # some files hold the token table twice
    table, twin = (
      NAMES['embeddings/tokens/embedding'],
      NAMES['mlm/table/embedding'],
    )
    strict.tie(renamed, table, twin)
  fields, config_problems = config_files.read_transformer(
    config, FIELDS, 'hidden_activation', GELU, ALWAYS
  )
  problems += twice + config_problems
  weights = Weights(folder, 'Hugging Face', 'bert', set_aside=set_aside)
  if fields is None:
    return weights._replace(problems=tuple(problems))
  pooling = config['classifier_pooling']
  if pooling not in POOLS:
    problems.append(
      f'classifier_pooling is {pooling!r}, expected one of {sorted(POOLS)}'
    )
  has = {name.partition('.')[0] for name in renamed}
  of_head = config['classifier_activation']
  if 'head' in has and GELU.get(of_head) != fields['gelu']:
    problems.append(
      f'classifier_activation is {of_head!r}, expected that of the layers,'
      f' hidden_activation={config["hidden_activation"]!r}'
    )
  heads = ('pooler',) * ('head' in has) + ('mlm',) * ('decoder' in has)
  model = bert.Bert(
    heads=heads,
    num_token_types=0,
    window=config['local_attention'] // 2,
    pool=POOLS.get(pooling, 'first'),
    tied=is_tied,
    **FORM,
    **fields,
  )
  head_shapes = {}
  if is_classifier and NAMES['classifier/kernel'] in renamed:
    K, *_ = renamed[NAMES['classifier/kernel']].shape
    head_shapes = {
      f'classifier/{name}': jax.ShapeDtypeStruct(shape, jnp.float32)
      for name, shape in (('kernel', (model.embed_dim, K)), ('bias', (K,)))
    }
    labels = config.get('id2label')
    weights = weights._replace(
      heads=('classifier',), labels=labels if isinstance(labels, dict) else {}
    )
  return weights.of_model(
    model,
    renamed,
    lambda shapes: _pieces(model, shapes),
    problems,
    head_shapes,
  )


def _older(config: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns a config with the keys of version 4 of transformers; problems."""
  problems = []
  kinds = config.get('layer_types')
  if isinstance(kinds, list) and kinds:
    period = next((i for i in range(1, len(kinds)) if kinds[i] == GLOBAL), None)
    period = period or len(kinds)
    expected = [LOCAL if i % period else GLOBAL for i in range(len(kinds))]
    if kinds != expected:
      problems.append(
        f'layer_types is {kinds}, expected {GLOBAL} every so many layers'
      )
    config['global_attn_every_n_layers'] = period
  for kind, key in ((GLOBAL, 'global'), (LOCAL, 'local')):
    base = config_files.look_up(config, f'rope_parameters.{kind}.rope_theta')
    if base is not None:
      config[f'{key}_rope_theta'] = base
    form = config_files.look_up(config, f'rope_parameters.{kind}.rope_type')
    if form not in (None, 'default'):
      problems.append(f"rope_type is {form!r}, only 'default' is known here")
  if not (
    config_files.is_count(config['local_attention'])
    and config['local_attention'] > 1
  ):
    problems.append(
      f'local_attention is {config["local_attention"]!r}, expected a count of 2'
      ' or more'
    )
    config['local_attention'] = DEFAULTS['local_attention']
  return config, problems


def is_like(model: bert.Bert) -> bool:
  """Returns whether a BERT has ModernBERT's form, so that it can be written."""
  return (
    all(getattr(model, name) == value for name, value in FORM.items())
    and not model.num_token_types
    and not model.query_key_norm
  )


def differs(model: bert.Bert) -> list[str]:
  """Returns the fields in which a model is not BERT's form, as name=value."""
  return [
    f'model.{name}={getattr(model, name)!r}'
    for name in (*FORM, 'window', 'query_key_norm')
    if getattr(model, name) != getattr(bert.Bert, name)
  ]


def to_hugging_face(
  params: Mapping, model: bert.Bert
) -> tuple[str, dict[str, np.ndarray]]:
  """Returns Hugging Face's class name, and name -> array in its files.

  A pooler without a classifier is left out, and so is the softmax beside one.
  Raises ValueError for other heads.
  """
  shapes = strict.flatten(params)
  tops = {path.partition('/')[0] for path in shapes}
  heads = tops - {'embeddings', 'layers', 'final_norm', 'pooler_norm'}
  unwanted = {'mlm'} if 'classifier' in heads else {'pooler', 'pooler_norm'}
  classes = {frozenset(heads): name for name, heads in ARCHITECTURES.items()}
  heads = frozenset(heads - unwanted)
  if heads not in classes:
    raise ValueError(
      f'no class of ModernBERT has the heads {" + ".join(sorted(heads))}: there'
      ' are mlm, and classifier with pooler'
    )
  kept = {
    path: leaf
    for path, leaf in shapes.items()
    if path.partition('/')[0] not in unwanted
  }
  arrays = strict.scatter(params, _pieces(model, kept))
  if not heads:
    return classes[heads], arrays
  return classes[heads], {
    PREFIX + name if name.startswith(ENCODER) else name: array
    for name, array in arrays.items()
  }


def to_config(model: bert.Bert) -> dict[str, Any]:
  """Returns the Hugging Face config of a model, which version 4 reads too."""
  gelus = {form: name for name, form in reversed(GELU.items())}
  pools = {pool: name for name, pool in POOLS.items()}
  sizes = {key: getattr(model, field) for key, (field, _) in FIELDS.items()}
  sizes['local_attention'] = 2 * model.window
  if not model.window:  # all layers are global
    sizes |= {'local_attention': 128, 'global_attn_every_n_layers': 1}
  return (
    ALWAYS
    | sizes
    | {
      'model_type': MODEL_TYPE,
      'hidden_activation': gelus[model.gelu],
      'classifier_activation': gelus[model.gelu],
      'classifier_pooling': pools[model.pool],
      'tie_word_embeddings': model.tied,
      # Else those of the released vocabulary, beyond the rows of a small table.
      **{f'{name}_token_id': None for name in 'pad bos eos cls sep'.split()},
    }
  )


def _pieces(model: bert.Bert, shapes: Mapping[str, Any]) -> Iterator[Piece]:
  """Yields the pieces of all parameters."""
  for path, leaf in shapes.items():
    if path in VOCABULARY:
      V = model.vocab_size
      shape = (V, *leaf.shape[1:])
      yield Piece(NAMES[path], path, shape, place=(slice(V),))
    elif path in NAMES:
      is_kernel = path.endswith('kernel')
      shape = leaf.shape[::-1] if is_kernel else leaf.shape
      yield Piece(NAMES[path], path, shape, num_inputs=int(is_kernel))
    else:
      name, inputs = LAYER_NAMES[path]
      sizes = leaf.shape[1:]
      shape = math.prod(sizes[inputs:]), math.prod(sizes[:inputs])
      shape = shape if inputs else sizes
      for i in range(name == 'attn_norm.weight', model.num_layers):
        yield Piece(
          f'layers.{i}.{name}', path, shape, place=(i,), num_inputs=inputs
        )
