"""ERNIE's Chinese tasks: the files of their authors, and ERNIE's."""

import collections

import pytest

from data.tasks import examples, registry

# Sentences of the test set in which the authors mark entities, by kind.
MSRA_ENTITIES = {'LOC': 2886, 'PER': 1973, 'ORG': 1331}


def test_the_sets_as_published(sesame_data, capsys):
  def load(name, split):
    return registry.load(registry.find(name), str(sesame_data), split)

  reviews = load('chnsenticorp', 'dev')
  assert reviews[2].label == '0'
  assert reviews[2].texts[0].startswith('商品的不足暂时还没发现')
  assert len(load('chnsenticorp', 'test')) == 1200
  pairs = load('lcqmc', 'dev')
  assert pairs[0] == examples.TextExample(
    '0', ('开初婚未育证明怎么弄？', '初婚未育情况证明怎么开？'), '1'
  )
  questions = load('lcqmc', 'test')
  assert len(questions) == 12500
  assert questions[0].texts == ('谁有狂三这张高清的', '这张高清图，谁有')
  assert not questions[0].is_labelled
  found = load('msra_ner', 'test')
  assert not capsys.readouterr().err  # all sizes are official
  assert {len(word) for each in found for word in each.words} == {1}
  begun = collections.Counter(tag for each in found for tag in each.tags)
  assert MSRA_ENTITIES == {
    tag[2:]: count for tag, count in begun.items() if tag[0] == 'B'
  }
  assert load('msra_ner', 'dev') == found


def test_ernies_files(load):
  """They have titles, and a sentence of MSRA is one line."""
  (pair,) = load(
    'lcqmc', 'dev', {'dev.tsv': 'text_a\ttext_b\tlabel\n甲\t乙\t1\n'}
  )
  assert pair == examples.TextExample('0', ('甲', '乙'), '1')
  head = 'text_a\tlabel\n'
  line = '王\x02在\x02京\tB-PER\x02O\x02B-LOC\n'
  (found,) = load('msra_ner', 'dev', {'msra_ner/dev.tsv': head + line})
  assert found == examples.TaggedExample(
    '0', ('王', '在', '京'), ('B-PER', 'O', 'B-LOC')
  )
  (alone,) = load(
    'msra_ner', 'test', {'msra_ner/test.tsv': 'text_a\n王\x02在\n'}
  )
  assert alone.tags is None
  text = 'text_a\ttext_b\tlabel\n甲\t乙\tcontradictory\n'
  (pair,) = load('xnli_zh', 'train', {'xnli/train.tsv': text})
  assert pair.label == 'contradiction'


@pytest.mark.parametrize(
  'name, bad, message',
  [
    ('chnsenticorp', 'label\ttext_a\n2\t好\n', "line 2: found the label '2'"),
    ('chnsenticorp', 'text_a\n好\n', r"line 1: found the columns \['text_a'\]"),
    ('chnsenticorp', 'label\ttext_a\n1\n', 'line 2: found 1 columns'),
    ('lcqmc', '甲\t乙\t1\n甲\t乙\n', 'line 2: found 2 columns, expected 3'),
    ('lcqmc', '甲\t乙\n', 'line 1: found no label, expected one'),
    ('lcqmc', '甲\n', 'line 1: found 1 columns, expected 3'),
    ('msra_ner', '王\tB-PER\n在 O\n', 'line 2: found 1 columns, expected 2'),
    (
      'msra_ner',
      'text_a\tlabel\n王\x02在\tB-PER\n',
      'line 2: found 1 tags, expected one for each of 2 words',
    ),
    ('msra_ner', '王\tB-MISC\n', "line 1: found the tag 'B-MISC'"),
  ],
)
def test_wrong_lines_are_named(load, name, bad, message):
  with pytest.raises(ValueError, match=f'train.tsv, {message}'):
    load(name, 'train', {f'{name}/train.tsv': bad})
