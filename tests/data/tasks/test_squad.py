"""SQuAD's and TriviaQA's files."""

import json

import pytest

from data.tasks import examples


def squad(*questions, context='The Norman dynasty  ruled.', **more):
  paragraph = {'context': context, 'qas': list(questions)}
  return json.dumps(
    {'data': [{'title': 'T', 'paragraphs': [paragraph]}]} | more
  )


def question(key, *answers, **more):
  answers = [{'text': text, 'answer_start': start} for text, start in answers]
  return {'id': key, 'question': f' {key}? ', 'answers': answers} | more


def test_squads_versions_are_told_by_the_questions(load):
  text = squad(
    question('a', ('Norman', 4), ('Norman dynasty', 4), is_impossible=False),
    question('b', is_impossible=True, plausible_answers=[{'text': 'x'}]),
    version='of mine',
  )
  found = load('squad2', 'train', {'train-v2.0.json': text})
  context = 'The Norman dynasty  ruled.'
  assert found == [
    examples.SpanExample(
      'a', 'a?', context, (('Norman', 4), ('Norman dynasty', 4))
    ),
    examples.SpanExample('b', 'b?', context, ()),
  ]
  untold = question('a')
  del untold['answers']
  (found,) = load('squad1', 'test', {'squad/test-v1.1.json': squad(untold)})
  assert (found.is_labelled, found.answers) == (False, ())
  with pytest.raises(ValueError, match="question 'a': found no label, expect"):
    load('squad1', 'dev', {'squad/dev-v1.1.json': squad(untold)})


@pytest.mark.parametrize(
  'text, message',
  [
    (
      squad(question('a', ('Roman', 4))),
      "question 'a': found 'Norma' in the context at character 4, expected the "
      "answer 'Roman'",
    ),
    (squad(question('a', ('', 4))), "question 'a': found the answer '' at 4"),
    (squad(question('a', ('x', -1))), "question 'a': found the answer 'x' at"),
    (
      squad(question('a', ('The', 0)), question('a', ('The', 0))),
      "question 'a': found the id 'a' of ",
    ),
    (
      squad(question('a', ('The', '0'))),
      "question 'a': found answer_start '0', expected the number",
    ),
    (
      squad(question('a', ('The', 0), is_impossible=True)),
      'found 1 answers of an impossible question, expected none',
    ),
    (squad(question('a', question=' ')), "'a': found an empty question, expec"),
    (squad(question('a', answers={})), "'a': found dict as answers, expected"),
    (squad({'id': 'a'}), "data 0, paragraph 0: found the fields ['id'], exp"),
    (squad(question('a'), context=' '), "'a': found an empty context, expect"),
    (
      squad(question(None)),
      "data 0, paragraph 0: found null in the field 'id'",
    ),
    (
      '{"data": [{"paragraphs": 5}]}',
      "data 0: found '5' in the field 'paragraphs', expected a list",
    ),
    ('{"data": null}', "v1.1.json: found 'None' in the field 'data', expected"),
    ('{"data": [{}]}', 'data 0: found the fields [], expected among them'),
    ('{"data": [],\n }', 'dev-v1.1.json, line 2: not JSON'),
    ('[]', 'dev-v1.1.json: found list, expected an object with the fields'),
    ('{"data": []}', 'dev-v1.1.json: found no example, expected those of the'),
  ],
)
def test_damaged_questions_are_named(load, text, message):
  with pytest.raises(ValueError) as error:
    load('squad1', 'dev', {'dev-v1.1.json': text})
  assert message in str(error.value)


def test_triviaqa_as_its_converter_writes_it(load, capsys):
  text = squad(
    question('q--doc.txt', ('norman dynasty', 4)), question('r--doc.txt')
  )
  (found,) = load('triviaqa', 'train', {'triviaqa/wikipedia-train.json': text})
  assert found.answers == (('Norman dynasty', 4),)
  assert '1 questions without an answer dropped' in capsys.readouterr().err
  wrong = squad(question('q', ('roman', 4)))
  with pytest.raises(
    ValueError, match="question 'q': found 'Norma' in the con"
  ):
    load('triviaqa', 'dev', {'triviaqa/dev.json': wrong})
