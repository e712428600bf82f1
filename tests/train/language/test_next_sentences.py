"""Whether a text follows another: beside transformers, and what is refused."""

import functools
import json
import pydoc_data.topics

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import next_sentence

PAIRS = [
  ('The function returns a value.', 'It is a string.'),
  ('A class has methods.', 'naïve, the mat is on the cat and the cat on it'),
  ('x', 'y'),
]


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """Folders of two small BERTs, random, the second without the head."""
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  folder = tmp_path_factory.mktemp('bert')
  small_published.write_bert(folder / 'whole', tokenizer)
  small_published.write_bert(folder / 'bare', tokenizer, kind='BertModel')
  return folder


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, next_sentence)


def test_probabilities_are_those_of_transformers(torch, folders, run, tmp_path):
  import transformers

  folder = folders / 'whole'
  model = transformers.BertForPreTraining.from_pretrained(folder).eval()
  tokenizer = transformers.BertTokenizerFast(str(folder / 'vocab.txt'))
  file = tmp_path / 'pairs.tsv'
  file.write_text('\n'.join('\t'.join(pair) for pair in PAIRS) + '\n\n')
  printed = run(folder, '--input', file, '--both_orders', '--json').out
  records = [json.loads(line) for line in printed.splitlines()]
  for record, (first, second) in zip(records, PAIRS, strict=True):
    assert (record['first'], record['second']) == (first, second)
    for name, pair in (
      ('follows', (first, second)),
      ('follows_in_the_other_order', (second, first)),
    ):
      inputs = tokenizer(*pair, return_tensors='pt')
      logits = model(**inputs).seq_relationship_logits[0]
      expected = torch.softmax(logits, 0)[0].item()
      np.testing.assert_allclose(record[name], expected, atol=1e-6)


def test_two_texts_are_shown(folders, run):
  printed = run(folders / 'whole', *PAIRS[0], '--both_orders').out
  lines = printed.splitlines()
  assert lines[:2] == [f'A  {PAIRS[0][0]}', f'B  {PAIRS[0][1]}']
  assert lines[2].endswith('  B follows A')
  assert lines[3].endswith('  A follows B')
  assert run(folders / 'whole', *PAIRS[0]).out.count('\n') == 3


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('a\tb\nc\n', 'line 2: found 1 texts, expected 2'),
    ('a\tb\tc\n', 'line 1: found 3 texts, expected 2'),
    ('\n', 'is empty, expected two texts a line'),
    ('a\t \n', 'pair 1: a text is empty'),
  ],
)
def test_bad_files_are_refused(text, message, run, tmp_path):
  file = tmp_path / 'pairs.tsv'
  file.write_text(text)
  with pytest.raises(SystemExit, match=message):
    run('W', '--input', file)


def test_a_head_that_lacks_and_a_long_pair_are_named(folders, run):
  with pytest.raises(SystemExit, match=r'sentences \(nsp\), found pooler'):
    run(folders / 'bare', 'a', 'b')
  with pytest.raises(SystemExit, match='pair 1 has 74 pieces'):
    run(folders / 'whole', 'a ' * 70, 'b')
