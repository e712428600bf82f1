"""Figures of ELMo's task models: what is told of them, and their references."""

import dataclasses
import json

from etils import epath
from fake_tables import OFFSETS, Fake, read, row_of, small_table

from configs.tables import base
from configs.tables.base import Row, TaskModel
from train.papers import table_plan, tables

GLOVE = {'task.word_vectors': 'glove.txt'}
FAMILY = {'e': 'elmo', 'v': base.VECTORS}
ROW = dict(values=('',) * 6, models={'mrpc': TaskModel('bilstm_attention')})


class WordFake(Fake):
  """Writes summaries of configs with the keys of task models."""

  def resolve(self, run):
    config = super().resolve(run)
    if run.model is not None:
      defaults = {'word_vectors': None, 'word_dim': 100}
      config.task = defaults | dict(config.get('task', {}))
    return config

  @property
  def engine(self):
    return super().engine._replace(family_of=FAMILY.get)


def word_table(**overrides):
  table = small_table()
  return dataclasses.replace(
    table,
    columns=table.columns[:2],
    tells=base.WORD_TELLS,
    **overrides,
  )


def fill(table, tmp_path, weights, overrides=None, **options):
  fake = WordFake()
  request = table_plan.CellRequest(
    table, epath.Path(tmp_path), 'sets', 3, overrides or {}
  )
  assert tables.make_table(request, weights, engine=fake.engine, **options)
  return read(tmp_path)


def cut(row):
  return dataclasses.replace(row, values=('',) * 2)


def test_the_vectors_of_words_are_told(tmp_path):
  table = word_table(
    rows=(
      cut(Row('With', **ROW, **base.ELMO)),
      cut(Row('Drawn', **ROW, **base.DRAWN)),
    )
  )
  text = fill(table, tmp_path, {'With': 'e'})
  for name in ('With', 'Drawn'):
    assert row_of(text, name, 'mrpc/f1†')[-1] == (
      'learning_rate=1e-05, word_vectors=drawn'
    )
  text = fill(table, tmp_path / 'two', {'With': 'e'}, GLOVE)
  assert 'word_vectors=glove.txt' in row_of(text, 'With', 'mrpc/f1†')[-1]
  assert 'word_vectors=drawn' in row_of(text, 'Drawn', 'mrpc/f1†')[-1]
  # A finished baseline is shown without its vectors, and is no other one.
  model = TaskModel('bcn')
  alone = Row('Alone', ('',) * 2, models={'mrpc': model}, **base.GLOVE)
  table = word_table(rows=(alone,))
  fill(table, tmp_path / 'three', {'Alone': 'v'})
  text = fill(table, tmp_path / 'three', {}, run=False)
  assert 'word_vectors=v' in row_of(text, 'Alone', 'mrpc/f1†')[-1]
  assert 'was run with' not in text


def test_sizes_of_a_task_model_are_compared(tmp_path):
  table = word_table(rows=(cut(Row('With', **ROW, **base.ELMO)),))
  fill(table, tmp_path, {'With': 'e'})
  # Sizes are the config's own, and a change of them is one.
  file = tmp_path / 'my_small/With/mrpc/summary.json'
  summary = json.loads(file.read_text())
  summary['config']['model.num_layers'] = 1
  file.write_text(json.dumps(summary))
  text = fill(table, tmp_path, {'With': 'e'})
  assert 'With, mrpc: was run with model.num_layers=1 and not 2' in text


def test_a_row_requires_keys(tmp_path):
  row = cut(Row('GloVe', requires=(*GLOVE,), **ROW, **base.ELMO))
  text = fill(word_table(rows=(row,)), tmp_path, {'GloVe': 'e'})
  assert 'GloVe: needs --config.task.word_vectors=VALUE' in text


def test_each_row_stands_beside_its_own_reference(tmp_path):
  quoted = cut(Row('Other', ('',) * 6))
  plain = cut(Row('Plain', reference='drawn', **ROW, **base.DRAWN))
  row = Row(
    'Mixed', reference='vectors+language_model@both', **ROW, **base.ELMO
  )
  table = word_table(
    rows=(quoted, plain, cut(row)), repeated=('Plain', 'Mixed')
  )
  found = [
    {'task': 'mrpc', 'seed': seed, 'inputs': inputs, 'metrics': {'f1': f1 + o}}
    for inputs, f1 in (
      ('drawn', 0.87),
      ('vectors+characters+language_model@both', 0.95),
      ('vectors+language_model@input', 0.1),
    )
    for seed, o in enumerate(OFFSETS)
  ]
  reference = tmp_path / 'reference.json'
  reference.write_text(json.dumps({'runs': found}))
  text = fill(table, tmp_path, {'Mixed': 'e', 'mine': 'e'}, reference=reference)
  assert row_of(text, 'Plain', 'mrpc/f1')[2:9] == [
    '87.0 ± 1.6',
    '88.0 ± 2.0',
    '3',
    '5',
    '+1.0',
    '2.7',
    'agrees',
  ]
  mixed = row_of(text, 'Mixed', 'mrpc/f1')
  assert (mixed[2], mixed[8]) == ('95.0 ± 1.6', 'differs')
  # A user's own weights were read by no other program.
  own = row_of(text, 'mine: Mixed', 'mrpc/f1')
  assert own[2:9] == ['', '88.0 ± 2.0', '3', *('',) * 4]
