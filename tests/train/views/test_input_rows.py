"""Rows of inputs: those of transformers, and of the training step."""

import functools
import json
import shutil

import jax
import numpy as np
import pytest
import small_published

from data.examples import masking, transforms
from data.vocabulary import characters, tokenization
from train import show_input
from train.architectures.architecture import Vocabulary
from train.run import settings
from train.views import input_rows

A, B = 'My dog is cute.', 'He likes playing.'


@pytest.fixture(scope='module')
def gpt(small_store, tmp_path_factory):
  """A folder of a small GPT, random."""
  source = json.loads((small_store / 'store.json').read_text())['spec']
  with open(source['source']) as file:
    tokenizer = tokenization.train(
      file.read().split('\n'), tokenization.parse_training('train:bpe:400')
    )
  folder = tmp_path_factory.mktemp('gpt')
  small_published.write_gpt(folder, tokenizer)
  return folder


@pytest.fixture
def run(run_command):
  """Returns a function from arguments of the command to its output."""
  return functools.partial(run_command, show_input)


def lines_of(text, title):
  """Returns name -> cells of the first part of a row, as printed."""
  found = text.split(f'{title}\n')[1].split('\n\n')[0].splitlines()
  return {line[2:13].strip(): line[13:].split() for line in found}


def test_rows_of_a_bert_are_those_of_transformers(small_bert, run):
  import transformers

  tokenizer = transformers.BertTokenizerFast(str(small_bert / 'vocab.txt'))
  found = json.loads(run(small_bert, A, B, '--json').out)['rows']
  encoded = tokenizer(A, B)
  (row,) = found
  assert row['id'] == encoded['input_ids']
  assert row['token'] == tokenizer.convert_ids_to_tokens(row['id'])
  assert row['token type'] == encoded['token_type_ids']
  assert row['position'] == list(range(len(row['id'])))
  symbols = [place for place, each in enumerate(row['part']) if each[0] == 's']
  assert symbols[0] == 0 and symbols[-1] == len(row['id']) - 1
  assert row['part'][1] == 'first' and row['part'][-2] == 'second'
  printed = run(small_bert, A, B).out
  shown = lines_of(printed, 'Input of two texts')
  assert shown['token'] == row['token'][: len(shown['token'])]
  assert shown['id'] == list(map(str, row['id'][: len(shown['id'])]))
  assert all(len(line) < 80 for line in printed.splitlines())


@pytest.mark.parametrize('unit', ['piece', 'word'])
def test_masks_are_those_of_the_training_step(
  unit, finished, small_config, run, tmp_path
):
  """What is shown is what `masking.mask_units` hides of this row."""
  workdir = shutil.copytree(finished[0], tmp_path / 'run')
  config = settings.with_overrides(small_config(), {'objective.unit': unit})
  (workdir / 'config.json').write_text(settings.as_json(config))
  seen = set()
  tokenizer = tokenization.load(workdir)
  vocabulary = Vocabulary.of(tokenizer)
  for seed in range(6):
    out = run(workdir, A, B, '--mask', f'--seed={seed}', '--json').out
    plain, row = json.loads(out)['rows']
    ids = np.array([plain['id']], np.int32)
    expected = masking.mask_units(
      {
        'tokens': ids,
        'token_mask': np.ones(ids.shape, bool),
        'example_mask': np.ones(1, bool),
      },
      transforms.row_keys(jax.random.key(seed), np.zeros(1, np.int32)),
      specials=vocabulary.specials,
      vocab_size=vocabulary.size,
      rates=masking.Rates(0.15, 0.8, 0.1),
      max_predictions=int(np.ceil(0.15 * ids.size)),
      continuations=vocabulary.continuations if unit == 'word' else None,
    )
    tokens = np.asarray(expected['tokens'])[0]
    assert row['input'] == [tokenizer.pieces[i] for i in tokens]
    assert row['text'] == plain['token']
    used = np.asarray(expected['mlm_weights'])[0] > 0
    places = np.asarray(expected['mlm_positions'])[0][used]
    assert [i for i, each in enumerate(row['predict']) if each] == [*places]
    for place in places:
      assert row['predict'][place] == row['text'][place]
      seen.add(row['as'][place])
    assert 'by the ' + unit in row['notes'][0]
    assert row['notes'][1] == 'next-sentence label 0: B follows A'
  assert 'masked' in seen and seen <= {'masked', 'random', 'kept'}


def test_the_label_of_another_document(
  finished, gpt, small_config, run, monkeypatch
):
  options = A, B, '--mask', '--not_next'
  printed = run(finished[0], *options).out
  assert 'next-sentence label 1: B is of another document' in printed
  with pytest.raises(SystemExit, match='a gpt predicts no next sentences'):
    run(gpt, *options)
  config = settings.with_overrides(small_config(), {'train.objective': 'mlm'})
  monkeypatch.setattr(
    input_rows, '_pretraining_config', lambda found: (config, 'a config')
  )
  with pytest.raises(SystemExit, match="objective='mlm' predicts no next"):
    run(finished[0], *options)
  assert 'next-sentence' not in run(finished[0], *options[:3]).out


def test_rows_of_a_gpt_have_its_symbols_and_both_orders(gpt, run):
  found = json.loads(run(gpt, A, B, '--both_orders', '--mask', '--json').out)
  given, other, next_tokens = found['rows']
  assert given['token'][0] == '_start_' and given['token'][-1] == '_classify_'
  assert 'token type' not in given
  cut = given['token'].index('_delimiter_')
  a, b = given['token'][1:cut], given['token'][cut + 1 : -1]
  assert other['token'] == ['_start_', *b, '_delimiter_', *a, '_classify_']
  assert other['part'][1] == 'second' and other['part'][-2] == 'first'
  assert next_tokens['token'] == [*a, *b]
  assert next_tokens['predict'] == [*next_tokens['token'][1:], None]


def test_an_elmo_reads_characters(small_elmo_folder, run):
  first, *others = json.loads(
    run(small_elmo_folder, 'A naïve 🏦', '--json').out
  )['rows']
  assert first['word'] == ['<S>', 'A', 'naïve', '🏦', '</S>']
  for word, row in zip(first['word'], others, strict=True):
    (letters,), _ = characters.encode_words([word])
    assert row['id'] == letters[: len(row['id'])].tolist()
    assert (letters[len(row['id']) :] == characters.PADDING_ID).all()
  assert others[2]['character'][1:-1] == ['n', 'a', '0xC3', '0xAF', 'v', 'e']
  with pytest.raises(SystemExit, match='without a vocabulary, whose words'):
    run(small_elmo_folder, 'A', '--mask')
