"""The Stanford Sentiment Treebank's files."""

import pytest

from data.tasks import sst5


@pytest.mark.parametrize(
  'tree',
  [
    'no tree',
    '(2 a',
    '(2 a))',
    '(2 a) (3 b)',
    '((2 a))',
    '()',
    '(2 )',
    '(2 (3 ))',
    ')',
  ],
)
def test_what_is_no_tree_is_refused(tree):
  with pytest.raises(ValueError, match=r'f.txt, line 7: found no tree at char'):
    sst5.parse('f.txt, line 7', tree)


def test_trees(load):
  tree = '(3 (2 (1 -LRB-) (2 A\\/B)) (4 (2 *) (4 good)))'
  assert sst5.parse('f', tree) == [
    ('3', '( A/B * good'),
    ('2', '( A/B'),
    ('1', '('),
    ('2', 'A/B'),
    ('4', '* good'),
    ('2', '*'),
    ('4', 'good'),
  ]
  files = {'trees/train.txt': f'{tree}\n', 'trees/dev.txt': '(5 bad)\n'}
  assert len(load('sst5_phrases', 'train', files)) == 7
  with pytest.raises(ValueError, match=r"dev.txt, line 1: found the label '5'"):
    load('sst5', 'dev', files)
