"""GLUE's files as its releases write them."""

import pytest
from task_tables import PARSES, table

from data.tasks import examples


def test_qqp_drops_broken_rows_in_training_and_counts_them(load, capsys):
  train = table(
    'id|qid1|qid2|question1|question2|is_duplicate',
    '133273|213221|213222|How is "life" in 1800\'s?|Who?|0',
    '402555|536040|536041|How do I',
    '360472|364011|490273|What causes stool to be yellow?||1',
  )
  found = load('qqp', 'train', {'QQP/train.tsv': train})
  assert found == [
    examples.TextExample('133273', ('How is "life" in 1800\'s?', 'Who?'), '0'),
    examples.TextExample(
      '360472', ('What causes stool to be yellow?', ''), '1'
    ),
  ]
  assert '1 damaged rows of fewer than 6 columns dropped' in (
    capsys.readouterr().err
  )
  test = table('id|question1|question2', '0|Why?|What?', '1|Who?')
  with pytest.raises(ValueError, match='test.tsv, line 3: found 2 columns'):
    load('qqp', 'test', {'QQP/test.tsv': test})


def test_mnli_has_other_columns_in_every_file(load):
  ids = 'index|promptID|pairID|genre|'
  five = '|label1|label2|label3|label4|label5|gold_label'
  files = {
    'MNLI/train.tsv': table(
      f'{ids}{PARSES}|label1|gold_label',
      '0|3|3n|fiction|(|(|(ROOT|(ROOT|It "is.|It isn\'t.|neutral|neutral',
    ),
    'MNLI/dev_matched.tsv': table(
      f'{ids}{PARSES}{five}',
      '7|6|6c|slate|(|(|(|(|One.|Two.|neutral|||||contradiction',
    ),
    'MNLI/dev_mismatched.tsv': table(
      f'{ids}{PARSES}{five}',
      '8|6|6e|oup|(|(|(|(|Three.|Four.|entailment|||||entailment',
    ),
    'MNLI/test_mismatched.tsv': table(
      f'{ids}{PARSES}', '9|3|3n|nine|(|(|(|(|Five.|Six.'
    ),
    'diagnostic/diagnostic-full.tsv': table(
      'Lexical Semantics|Predicate-Argument Structure|Logic|Knowledge|Domain|'
      'Premise|Hypothesis|Label',
      '||Negation||Artificial|The cat sat.|The cat did not sit.|contradiction',
    ),
  }
  found = {
    split: load('mnli', split, files)
    for split in (
      'train',
      'dev',
      'dev_mismatched',
      'test_mismatched',
      'diagnostic',
    )
  }
  assert found == {
    'train': [examples.TextExample('0', ('It "is.', "It isn't."), 'neutral')],
    'dev': [examples.TextExample('7', ('One.', 'Two.'), 'contradiction')],
    'dev_mismatched': [
      examples.TextExample('8', ('Three.', 'Four.'), 'entailment')
    ],
    'test_mismatched': [examples.TextExample('9', ('Five.', 'Six.'), None)],
    'diagnostic': [
      examples.TextExample(
        '0', ('The cat sat.', 'The cat did not sit.'), 'contradiction'
      )
    ],
  }


def test_multinlis_own_files_drop_what_has_no_majority(load, capsys):
  rows = table(
    f'gold_label|{PARSES}|promptID|pairID|genre|label1|label2|label3',
    'neutral|(|(|(|(|A man.|A boy.|31193|31193n|government|neutral',
    '-|(|(|(|(|A man.|A dog.|31193|31193c|government|neutral|entailment|',
  )
  found = load('mnli', 'dev', {'multinli_1.0_dev_matched.txt': rows})
  assert found == [
    examples.TextExample('31193n', ('A man.', 'A boy.'), 'neutral')
  ]
  assert '1 pairs without a majority label dropped' in capsys.readouterr().err
