"""The page of the papers' arguments: its sections, sentences and pictures."""

import pytest

from configs.tables.base import Contrast
from train.papers import arguments_page, contrasts, small_table, table_rows

TABLE = table_rows.load_table('small/arguments')
CONTRAST = Contrast('More is better', 'full', 'less')


def difference(column, mean, published=None, contrast=CONTRAST, error=0.3):
  # With 4 degrees of freedom the interval is 0.83 to each side.
  return contrasts.Difference(contrast, column, published, mean, error, 4)


def test_a_sentence_has_the_paper_and_ours():
  rows = [
    difference('sst2', 2.0, 0.5),
    difference('mrpc', -2.0, -3.25),
    difference('cola', 0.1),
    difference('stsb', -0.5),
  ]
  assert arguments_page.tell(rows) == (
    'In the paper the difference is +0.5 in sst2, -3.2 in mrpc; here the'
    ' argument holds in sst2 (+2.0, +1.2 to +2.8); it is reversed in mrpc'
    ' (-2.0, -2.8 to -1.2); it does not show in cola (+0.1, -0.7 to +0.9), stsb'
    ' (-0.5, -1.3 to +0.3).'
  )
  assert arguments_page.tell(rows[:1]).startswith(
    'In the paper the difference is +0.5 in sst2; here the argument holds in'
    ' sst2'
  )
  assert arguments_page.tell(rows[2:]).startswith(
    'The paper has no figures of it; here the argument does not show in cola'
  )


@pytest.fixture
def asked(monkeypatch):
  """Makes differences up; returns the ids of the tables that were read."""
  asked = []

  def read(table, out):
    del out
    asked.append(table.id)
    if table.id != 'small/bert_tasks':
      return []
    first, second, third, *_ = table.contrasts
    return [
      difference('sst2/accuracy', 2.0, None, first),
      difference('mrpc/f1', 2.0, None, second, None),  # pre-trained once
      difference('sst2/accuracy', 0.2, 0.1, third),
    ]

  monkeypatch.setattr(small_table, 'read_differences', read)
  return asked


def test_the_page_has_each_argument_and_its_picture(asked, tmp_path):
  assert arguments_page.make(TABLE, tmp_path)
  # Tables of our own arguments quote no paper.
  assert asked == [
    'small/bert_features',
    'small/bert_masking',
    'small/bert_sizes',
    'small/bert_tasks',
    'small/gpt_ablation',
  ]
  page = (tmp_path / 'small_arguments.md').read_text()
  heads = [line for line in page.split('\n') if line.startswith('## ')]
  assert heads == [
    '## Pre-training helps',
    '## Predicting the next sentence helps',
  ]
  assert (
    'Devlin et al. 2018, Table 5: "MLM & NSP" beside "No NSP". In the paper the'
    ' difference is +0.1 in sst2/accuracy; here the argument does not show in'
    ' sst2/accuracy (+0.2, -0.6 to +1.0).\n\n![Predicting the next sentence'
    ' helps](small_arguments/bert_tasks_3.png)\n'
  ) in page
  drawn = sorted(path.name for path in (tmp_path / 'small_arguments').iterdir())
  assert drawn == ['bert_tasks_1.png', 'bert_tasks_3.png']


def test_without_an_interval_nothing_is_written(tmp_path, monkeypatch):
  monkeypatch.setattr(small_table, 'read_differences', lambda *_: [])
  with pytest.raises(ValueError, match=r'has an interval.*small/bert_tasks'):
    arguments_page.make(TABLE, tmp_path)
  assert not list(tmp_path.iterdir())


def test_options_of_other_tables_are_refused(tmp_path):
  with pytest.raises(ValueError, match='takes no --data'):
    arguments_page.make(TABLE, tmp_path, unused=['--data'])
