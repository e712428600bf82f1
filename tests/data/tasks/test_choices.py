"""Story Cloze and SWAG as their releases write them."""

import pytest

from data.tasks import examples, story_cloze

STORY = 'InputStoryid,InputSentence1,InputSentence2,InputSentence3,'
STORY += 'InputSentence4,RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2'
LABELLED = 'cloze_test_val__spring2016 - cloze_test_ALL_val.csv'
UNTOLD = 'cloze_test_test__spring2016 - cloze_test_ALL_test.csv'


def test_story_cloze_is_split_as_in_the_release(load):
  story = '"Rick, 5, grew up.",He fell.,"He said ""ow"".",He rose.,Good.,Bad.'
  rows = [f'{STORY},AnswerRightEnding']
  rows += [f'id{i},{story},{i % 2 + 1}' for i in range(1871)]
  files = {LABELLED: '\r\n'.join(rows)}
  train = load('story_cloze', 'train', files)
  dev = load('story_cloze', 'dev', files)
  assert (len(train), len(dev)) == (1497, 374)
  assert {e.id for e in train + dev} == {f'id{i}' for i in range(1871)}
  number = int(dev[0].id[2:])
  assert dev[0] == examples.ChoiceExample(
    f'id{number}',
    'Rick, 5, grew up. He fell. He said "ow". He rose.',
    '',
    ('Good.', 'Bad.'),
    number % 2,
  )
  test = load('story_cloze', 'test', {UNTOLD: f'{STORY}\na,{story}\n'})
  assert [(e.id, e.label) for e in test] == [('a', None)]
  bad = '\n'.join([rows[0], f'a,{story},3'])
  with pytest.raises(ValueError, match="line 2: found the right ending '3'"):
    load('story_cloze', 'train', {LABELLED: bad})
  bad = '\n'.join([rows[0], f'a,{story},1'.replace('He fell.', '')])
  with pytest.raises(ValueError, match='found an empty InputSentence2, exp'):
    load('story_cloze', 'train', {LABELLED: bad})


def test_story_clozes_split_is_that_of_scikit_learn():
  selection = pytest.importorskip('sklearn.model_selection')
  for count in (1871, 20):
    rows = list(range(count))
    train, dev = story_cloze.split_rows(count)
    expected = selection.train_test_split(
      rows, test_size=len(dev), random_state=3535999445
    )
    assert [train, dev] == expected


SWAG = 'sent1,sent2,gold-source,ending0,ending1,ending2,ending3'


def test_swag(load):
  train = (
    f',video-id,fold-ind,startphrase,{SWAG},label\n'
    '0,lsmdc1,18313,They lower. She,They lower.,She,gold,"pats, then",turns '
    'with two.,walks.,wheels.,2\n'
  )
  test = (
    f',video-id,fold-ind,startphrase,{SWAG}\n'
    '0,anetv,1,A. B,A.,B,gen,"a\nb",c,d,e\n'
  )
  files = {'train.csv': train, 'test.csv': test}
  assert load('swag', 'train', files) == [
    examples.ChoiceExample(
      '0',
      'They lower.',
      'She',
      ('pats, then', 'turns with two.', 'walks.', 'wheels.'),
      2,
    )
  ]
  (found,) = load('swag', 'test', files)
  assert (found.choices[0], found.label) == ('a\nb', None)
  with pytest.raises(ValueError, match="line 2: found the label '4', expected"):
    load('swag', 'train', {'train.csv': train.replace(',2\n', ',4\n')})
  with pytest.raises(ValueError, match='line 2: found 13 columns, expected 12'):
    load('swag', 'train', {'train.csv': train.replace(',2\n', ',4,5\n')})
  with pytest.raises(ValueError, match='found wrong quoting'):
    load('swag', 'train', {'train.csv': train.replace('"pats', '"pa"ts')})
  with pytest.raises(ValueError, match=r"expected among them \['label'\]"):
    load('swag', 'dev', {'val.csv': test})
