"""Small published models of odd sizes, that the tests of this folder share."""

import jax
import numpy as np

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


def draw(model, extra=None):
  """Random parameters of a model, and of an extra head (name, K)."""
  shapes = {
    path: leaf.shape for path, leaf in weights.shapes_of(model).items()
  }
  if extra:
    name, K = extra
    shapes |= {f'{name}/kernel': (model.embed_dim, K), f'{name}/bias': (K,)}
  rng = np.random.default_rng(0)
  params = {}
  for path, shape in shapes.items():
    leaf = 0.3 * rng.normal(size=shape).astype(np.float32)
    if path in ('embeddings/tokens/embedding', 'mlm/bias'):
      leaf[model.vocab_size :] = 0
    strict.put(params, path.split('/'), leaf)
  return params


def make_bert(name):
  """The model of a class, and its parameters."""
  heads, extra = BERT_CLASSES[name]
  model = bert.Bert(**BERT, heads=heads)
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
