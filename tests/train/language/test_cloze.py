"""Masks filled as by transformers, and texts that cannot be filled."""

import functools
import json
import pydoc_data.topics
import re

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import fill_mask
from train.language import cloze
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  """A folder with a small BERT, random."""
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training('train:wordpiece:400'),
  )
  folder = tmp_path_factory.mktemp('bert')
  small_published.write_bert(folder, tokenizer)
  return folder


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, fill_mask)


PROMPTS = [
  'The [MASK] sat on the mat.',
  '[MASK] cat [MASK][MASK] naïve [SEP] the mat',
]


def test_fills_as_the_pipeline_of_transformers(bert, run):
  transformers = pytest.importorskip('transformers')
  pipeline = transformers.pipeline(
    'fill-mask',
    model=transformers.BertForMaskedLM.from_pretrained(bert),
    tokenizer=transformers.BertTokenizerFast(str(bert / 'vocab.txt')),
    top_k=7,
  )
  printed = run(bert, *PROMPTS, '--top_k=7', '--json')
  ours = [json.loads(line) for line in printed.out.splitlines()]
  assert [record['text'] for record in ours] == PROMPTS
  for record, theirs in zip(ours, pipeline(PROMPTS), strict=True):
    masks = theirs if isinstance(theirs[0], list) else [theirs]
    for mask, expected in zip(record['masks'], masks, strict=True):
      assert [guess['id'] for guess in mask] == [x['token'] for x in expected]
      np.testing.assert_allclose(
        [guess['probability'] for guess in mask],
        [x['score'] for x in expected],
        rtol=1e-4,
      )
  printed = run(bert, *PROMPTS)
  assert printed.out.count('[MASK] 3') == 1
  assert ours[0]['masks'][0][0]['piece'] in printed.out


def test_what_cannot_be_filled(bert, run, tmp_path):
  found = TrainedModel(bert)
  with pytest.raises(ValueError, match='at most.*\n  text 2: 103'):
    cloze.fill(found, ['a [MASK]', '[MASK]' + ' .' * 100])
  with pytest.raises(ValueError, match='--top_k=401: expected 1 to 400'):
    cloze.fill(found, PROMPTS, top_k=401)
  small_published.write_bert(tmp_path / 'x', found.tokenizer, 'BertModel')
  for weights, prompts, message in (
    (bert, ['[MASK]', 'a', 'b'], "found none in\n  text 2: 'a'\n  text 3"),
    (tmp_path / 'x', ['[MASK]'], 'no head for masked pieces (mlm), found pool'),
  ):
    with pytest.raises(SystemExit, match=re.escape(message)):
      run(weights, *prompts)
