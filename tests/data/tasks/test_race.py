"""RACE as its release writes it."""

import json

import pytest

from data.tasks import examples


def test_race_is_a_folder_of_articles(load):
  def article(key, answers):
    return json.dumps(
      {
        'id': key,
        'article': f'Text of {key}.',
        'questions': [f'Question {i} _ .' for i in range(len(answers))],
        'options': [['w', 'x', 'y', 'z']] * len(answers),
        'answers': answers,
      }
    )

  files = {
    'RACE/dev/high/10.txt': article('high10.txt', ['A']),
    'RACE/dev/high/9.txt': article('high9.txt', ['D', 'B']),
    'RACE/dev/middle/100.txt': article('middle100.txt', ['C']),
  }
  found = load('race', 'dev', files)
  assert [(e.id, e.group, e.label) for e in found] == [
    ('middle100.txt-0', 'middle', 2),
    ('high9.txt-0', 'high', 3),
    ('high9.txt-1', 'high', 1),
    ('high10.txt-0', 'high', 0),
  ]
  assert found[2] == examples.ChoiceExample(
    'high9.txt-1',
    'Text of high9.txt.',
    'Question 1 _ .',
    ('w', 'x', 'y', 'z'),
    1,
    'high',
  )
  bad = json.loads(article('high9.txt', ['D', 'E']))
  with pytest.raises(
    ValueError, match=r"9.txt, question 2: found the answer 'E', expected one"
  ):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  bad['answers'] = ['A']
  with pytest.raises(ValueError, match='found 2 questions, 2 options and 1 an'):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  del bad['answers']
  with pytest.raises(ValueError, match=r"9.txt: found the fields \['article'"):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  bad['answers'] = 5
  with pytest.raises(ValueError, match="9.txt: found '5' in the field 'answer"):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  for field, value in (('options', ['w', None]), ('questions', [None, 'Q.'])):
    wrong = {**bad, 'answers': ['A', 'B'], field: value}
    with pytest.raises(
      ValueError, match='9.txt, question 1: found .* expected'
    ):
      load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(wrong)})
  (found,) = load('race', 'test', {'RACE/test/high/1.txt': article('1', ['A'])})
  assert found.label == 0
  with pytest.raises(ValueError, match='train: found no article, expected fil'):
    load('race', 'train', {'RACE/train/empty': ''})
