"""That another default of fine-tuning changes no cell of a paper's table."""

import json
import pathlib

import pytest
from fake_tables import cells_of

from configs.tables import base
from train.papers import table_plan, table_rows
from train.run import settings

# Table -> 'task, model' -> what the cells' resolved configs say of KEYS.
RECORDED = json.loads(
  pathlib.Path(__file__).with_name('cell_recipes.json').read_text()
)
OWN = {'own BERT': 'bert', 'own GPT': 'gpt', 'own ELMo': 'elmo'}
KEYS = (
  'optim.name',
  'optim.learning_rate',
  'optim.schedule',
  'optim.warmup_fraction',
  'optim.epsilon',
  'optim.weight_decay',
  'optim.clip_norm',
  'train.num_epochs',
  'train.global_batch',
  'train.count',
  'train.select',
  'task.max_length',
  'task.frozen',
  'task.lm_weight',
)


def recipes_of(table_id):
  """Returns what RECORDED has of a table."""
  table = table_rows.load_table(table_id)
  rows = [row for row in table.rows if row.family not in ('', base.NO_WEIGHTS)]
  families = {row.name: row.family for row in rows} | OWN
  cells = cells_of(
    table,
    {name: name for name in families},
    families,
    overrides={'task.word_vectors': 'glove.txt'},
  )
  found = {}
  for run in (run for cell in cells if not cell.reason for run in cell.runs):
    if run.part.task == base.PRETRAINING:
      continue
    config = settings.load_config(run.config)
    flat = settings.flatten(settings.with_overrides(config, run.overrides))
    model = run.model.name if run.model else run.line.family
    found.setdefault(f'{run.part.task}, {model}', set()).add(
      ' '.join(str(flat.get(key, '-')) for key in KEYS)
    )
  return {name: sorted(texts) for name, texts in found.items()}


@pytest.mark.parametrize('table_id', table_rows.shipped_tables())
def test_cells_are_learned_as_recorded(table_id, monkeypatch):
  monkeypatch.setattr(table_plan, 'count_examples', lambda *_: 1000)
  assert recipes_of(table_id) == RECORDED.get(table_id, {})
