"""What the page of a table of small pre-trainings says of its figures."""

import pytest

from train.papers import contrasts, small_page, table_rows

# The mean of a difference whose standard error is 1.
ABOVE, WITHIN = 2.1, 1.9


def make_differences(table, **means):
  """Returns differences of a claim's first word, in the order of columns."""
  return [
    contrasts.Difference(contrast, column.name, None, mean, 1.0, 4)
    for contrast in table.contrasts
    if (first := contrast.worse.partition(' ')[0]) in means
    for column, mean in zip(table.columns, means[first], strict=False)
  ]


def make_page(table, differences):
  facts = {'command': 'do', 'pretrainings': [], 'fine_tunings': []}
  return small_page.lay_out(table, {}, differences, facts, {})


def test_the_tasks_on_which_pre_training_is_above_are_counted():
  table = table_rows.load_table('small/bert_tasks')
  differences = make_differences(
    table,
    no=[ABOVE] * 5 + [WITHIN, ABOVE],  # the last are pairs, and no task
    word2vec=[ABOVE, WITHIN, -ABOVE, WITHIN],
    No=[ABOVE] * 7,  # trained itself
  )
  title, lines = make_page(table, differences).lists[-1]
  assert title == 'Does pre-training pay?'
  of_untrained, of_words, criterion = lines
  assert of_untrained == (
    'MLM & NSP is above no pre-training by more than twice the standard error'
    ' on 5 of 6 tasks (sst2/accuracy, mrpc/accuracy, stsb/spearman,'
    ' cola/matthews, squad1/f1).'
  )
  assert 'above word2vec' in of_words
  assert of_words.endswith('on 1 of 4 tasks (sst2/accuracy).')
  assert criterion.endswith('at least 5 of 6 tasks.')


@pytest.mark.parametrize('name', ['small/bert_masking', 'small/modern_bert'])
def test_tables_of_trained_rows_alone_say_nothing_of_it(name):
  table = table_rows.load_table(name)
  differences = [
    contrasts.Difference(contrast, table.columns[-1].name, None, ABOVE, 1.0, 4)
    for contrast in table.contrasts
  ]
  lists = dict(make_page(table, differences).lists)
  assert 'Does pre-training pay?' not in lists
  count = len(table.contrasts)
  (note,) = [each for each in lists['Notes'] if 'comparisons' in each]
  assert f'are {count} comparisons' in note
  assert note.endswith(f'{count / 20:.1f} of these are expected.')


def test_one_task_alone_is_no_measure_of_whether_it_pays():
  table = table_rows.load_table('small/bert_features')
  lists = dict(make_page(table, make_differences(table, Last=[ABOVE])).lists)
  (line,) = lists['Does pre-training pay?']
  assert line.endswith('on 1 of 1 tasks (panx_en/f1).')
