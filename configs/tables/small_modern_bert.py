r"""What a BERT gains by each thing that is known since 2018, by small ones.

The recipe of 2018, all the parts that were thought of for a modern one, each
of them added to the first alone, and left out of all. 1,000 steps each:

  python -m train.tables --table small/modern_bert --data sets

`bert_tiny:modern` and larger ones have all parts but the constant rate, and
rows of whole documents (configs/README.md). Nothing is fine-tuned: a rate
that suits the modern form can destroy that of 2018 (results/README.md).
"""

from collections.abc import Mapping
from typing import Any

from configs.tables import base, small
from configs.tables.base import Contrast
from configs.tables.small_bert_sizes import PERPLEXITY

OLD, ALL, SLOW = '2018', 'all', '2018, the same minutes'
STEPS = {'train.steps': 1_000}
# Claim -> changes that add a part to the recipe of 2018, and that leave it out
# of all of them. A gated MLP has as many numbers as a plain one.
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
  'norms before the blocks': ({'model.norm': 'pre'}, {'model.norm': 'post'}),
  'no biases': ({'model.biases': False}, {'model.biases': True}),
  'a gated MLP': (
    {'model.gated': True, 'model.mlp_dim': 320},
    {'model.gated': False, 'model.mlp_dim': 512},
  ),
  'rotary positions': (
    {'model.positions': 'rotary', 'model.num_token_types': 0},
    {'model.positions': 'learned', 'model.num_token_types': 2},
  ),
  'windows': ({'model.window': 64}, {'model.window': 0}),
  'more masks at first': (
    {'objective.first_mask_rate': 0.3},
    {'objective.first_mask_rate': None},
  ),
  'Muon': (
    {'optim.name': 'muon', 'optim.learning_rate': 1e-2},
    {'optim.name': 'adamw', 'optim.learning_rate': 2e-3},
  ),
  'a constant rate before its fall': (
    {'optim.schedule': 'wsd'},
    {'optim.schedule': 'linear'},
  ),
  'no next sentences': (
    {'train.objective': 'mlm'},
    {'train.objective': 'bert'},
  ),
}
# In neither of them.
UNUSED: dict[str, dict[str, Any]] = {
  'norms of queries and keys': {'model.query_key_norm': True},
  'a softmax of its own table': {'model.tied': False},
  'rows of whole documents': {'data.packed': 'documents'},
  'StableAdamW in place of Muon': {
    'optim.name': 'stable_adamw',
    'optim.learning_rate': 2e-3,
  },
  'dropout': {'model.dropout_rate': 0.1, 'model.attention_dropout_rate': 0.1},
}


def _row(name: str, config: str, changes: Mapping[str, Any]) -> base.Row:
  return small.row(
    name, ('',), f'ablation:bert,{config}', changes={**STEPS, **changes}
  )


def _of_all(name: str, changes: Mapping[str, Any]) -> base.Row:
  first = {'optim.schedule': 'wsd', 'data.packed': None}
  return _row(name, 'modern', {**first, **changes})


def _with(part: str) -> str:
  return f'{OLD} + {part}'


def _without(part: str) -> str:
  return f'{ALL} - {part}'


def _beside(part: str) -> str:
  return f'{ALL} + {part}'


TABLE = base.Table(
  id='small/modern_bert',
  title='What is known of BERT since 2018, part by part, at a small size',
  source='ours; no published figures',
  columns=(PERPLEXITY,),
  maker='small_table',
  notes=(
    'Every row is pre-trained by this table on the same books and articles of'
    ' Wikipedia (WikiText-2), and none is fine-tuned.',
    *small.NOTES[2:],
    'The perplexity is that of masked tokens of the same held-out windows, 15 %'
    ' of which are hidden by the same draws, without next sentences. Rows have'
    f' as many steps, which take other seconds; {SLOW!r} has 1.46 times as'
    ' many, as the same minutes let it (`python -m train.bench recipes`).',
  ),
  contrasts=(
    Contrast('All parts learn more from a step', ALL, OLD),
    Contrast('They learn more in the same minutes', ALL, SLOW),
    *(
      Contrast(f'{part}: helps the recipe of 2018', _with(part), OLD)
      for part in PARTS
    ),
    *(
      Contrast(f'{part}: the others need it', ALL, _without(part))
      for part in PARTS
    ),
    *(
      Contrast(f'{part}: helps the others', _beside(part), ALL)
      for part in UNUSED
    ),
  ),
  rows=(
    _row(OLD, '2018', {}),
    _row(SLOW, '2018', {'train.steps': 1_460}),
    _of_all(ALL, {}),
    *(_row(_with(p), '2018', added) for p, (added, _) in PARTS.items()),
    *(_of_all(_without(p), taken) for p, (_, taken) in PARTS.items()),
    *(_of_all(_beside(p), added) for p, added in UNUSED.items()),
  ),
)
