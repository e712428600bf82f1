"""Prompts and scores of GPT-2's zero-shot tasks."""

import json

import pytest
from small_gpt import small_trained

from train.language import zero_shot


def coqa(tmp_path, **changes):
  entry = {
    'story': 'Ann has a red hat.',
    'questions': [{'input_text': 'Who?'}, {'input_text': 'What colour?'}],
    'answers': [{'input_text': 'Ann'}, {'input_text': 'red'}],
    'additional_answers': {
      '0': [{'input_text': 'Ann does'}, {'input_text': 'a red one'}],
      '1': [{'input_text': 'ann'}, {'input_text': 'blue'}],
    },
  } | changes
  path = tmp_path / 'coqa.json'
  path.write_text(json.dumps({'version': '1.0', 'data': [entry]}))
  return path


def test_coqa_shows_the_turns_before(tmp_path):
  conversations = zero_shot.read_coqa(coqa(tmp_path))
  seen = []

  def complete(prompts):
    seen.extend(prompts)
    return [' Ann\nQ: more', ' The red.']

  report = zero_shot.run_coqa(conversations, complete)
  assert seen == [
    'Ann has a red hat.\n\nQ: Who?\nA:',
    'Ann has a red hat.\n\nQ: Who?\nA: Ann\nQ: What colour?\nA:',
  ]
  assert report['answers'] == ['Ann', 'The red.']
  # By hand: of 'Ann' the best among the others is 1 each time; 'red' scores 1
  # against the first and 2/3 against 'red one' (articles do not count).
  second = (2 / 3 + 1 + 1) / 3
  assert report['f1'] == pytest.approx(100 * (1 + second) / 2)


@pytest.mark.parametrize(
  ('answer', 'truth', 'expected'),
  [
    ('The cat!', 'cat', 1.0),
    ('a big cat', 'cat', 2 / 3),
    ('dog', 'cat', 0.0),
    ('', '', 1.0),
    ('the', 'cat', 0.0),
    ('cat cat', 'cat', 2 / 3),
  ],
)
def test_answers_are_compared_by_words(answer, truth, expected):
  assert zero_shot.coqa_f1(answer, [truth]) == pytest.approx(expected)


def test_damaged_coqa_is_named(tmp_path):
  with pytest.raises(ValueError, match='entry 0 of "data" is not as in CoQA'):
    zero_shot.read_coqa(coqa(tmp_path, answers=[{'input_text': 'Ann'}]))
  for changes in (
    {'story': None},
    {'questions': [], 'answers': []},
    {'questions': [{'input_text': 3}] * 2},
    {'additional_answers': []},
  ):
    with pytest.raises(ValueError, match='entry 0 of "data" is not as in CoQA'):
      zero_shot.read_coqa(coqa(tmp_path, **changes))
  for text in ('[]', '{"data": 5}', '{'):
    (tmp_path / 'x.json').write_text(text)
    with pytest.raises(ValueError, match='expected CoQA, a JSON object'):
      zero_shot.read_coqa(tmp_path / 'x.json')


def test_summaries_are_three_sentences_scored_by_rouge(tmp_path):
  (tmp_path / 'a.story').write_text(
    'It rained in Rome.\n\n@highlight\n\nRain fell.\n\n@highlight\n\nIn Rome.\n'
  )
  articles = zero_shot.read_stories(tmp_path)
  assert articles == [('It rained in Rome.', 'Rain fell.\nIn Rome.')]
  prompts = []

  def complete(given):
    prompts.extend(given)
    return [' Rain fell. In Rome. So it was. And more.']

  report = zero_shot.run_summaries(articles, complete)
  assert prompts == ['It rained in Rome.\nTL;DR:']
  assert report['summaries'] == ['Rain fell.\nIn Rome.\nSo it was.']
  # Four words of the truth among seven.
  assert report['rouge1'] == pytest.approx(100 * 2 * (4 / 7) / (4 / 7 + 1))
  lines = tmp_path / 'articles.jsonl'
  lines.write_text('{"article": "A.", "highlights": "B."}\n{"article": 3}\n')
  with pytest.raises(ValueError, match='line 2: expected {"article": text'):
    zero_shot.read_stories(lines)
  # A list of URLs chooses a split: the SHA-1 of each is a file's name.
  name = '0a4d55a8d778e5022fab701977c5d840bbc486d0.story'
  (tmp_path / 'a.story').rename(tmp_path / name)
  (tmp_path / 'b.story').write_text('Not of this split.\n@highlight\nNo.')
  urls = tmp_path / 'all_test.txt'
  urls.write_text('Hello World\n')
  assert zero_shot.read_stories(tmp_path, urls) == articles
  urls.write_text('Hello World\nGone\n')
  with pytest.raises(FileNotFoundError, match=r'\.story'):
    zero_shot.read_stories(tmp_path, urls)
  (tmp_path / 'a.story').write_text('No summary.')
  with pytest.raises(ValueError, match=r'a.story: has no @highlight'):
    zero_shot.read_stories(tmp_path)


def test_long_articles_lose_their_end():
  found = small_trained()
  long = zero_shot.Article('One two three four. ' * 9, 'A.')
  short = zero_shot.Article('One.', 'A.')
  room = found.model.max_length + 1 - 20
  shown = zero_shot.shorten_articles(found.tokenizer, [short, long], room)
  assert shown[0] == short
  assert long.text.startswith(shown[1].text)
  (ids,) = found.tokenizer.encode_batch([shown[1].text + zero_shot.TL_DR])
  assert abs(len(ids) + 20 - (found.model.max_length + 1)) <= 1
  with pytest.raises(ValueError, match='hold no article'):
    zero_shot.shorten_articles(found.tokenizer, [long], 1)


def test_translation_is_scored_by_sacrebleu(tmp_path):
  pairs = [
    ('un', 'one'),
    ('deux', 'two'),
    ('le chat est sur le tapis .', 'the cat is on the mat .'),
  ]
  prompts = []

  def complete(given):
    prompts.extend(given)
    return [' the cat is on the mat . And so on.\nquatre = four']

  report = zero_shot.run_translation(pairs, complete)
  assert prompts == ['un = one\ndeux = two\nle chat est sur le tapis . =']
  assert report['translations'] == ['the cat is on the mat .']
  assert report['bleu'] == pytest.approx(100)
  with pytest.raises(ValueError, match='more than the 2 that serve'):
    zero_shot.run_translation(pairs[:2], complete)
  (tmp_path / 'none').write_text('')
  assert zero_shot.read_parallel(tmp_path / 'none', tmp_path / 'none') == []
  for name, text in (('a', 'x\ny\n'), ('b', 'z\n')):
    (tmp_path / name).write_text(text)
  with pytest.raises(ValueError, match='has 2 lines, .* 1: expected as many'):
    zero_shot.read_parallel(tmp_path / 'a', tmp_path / 'b')
