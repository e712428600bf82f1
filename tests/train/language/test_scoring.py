"""Perplexities and choices, against scores one token at a time."""

import csv
import json
import math
import sys

import jax
import numpy as np
import published_cases
import pytest
import transformers
from etils import epath
from flax import linen as nn
from small_gpt import small_trained

from data.text import detokenize, text_files
from data.vocabulary import tokenization
from models import lstm_lm
from models.pretrained import gpt as pretrained
from train import score
from train.architectures import families
from train.language import scoring
from train.vectors import trained_model
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def found():
  return small_trained()


TEXT = 'The cat sat on the mat . ' * 12 + 'Then it rained , and all went home .'


@pytest.mark.parametrize(
  ('num_tokens', 'context', 'stride'),
  [(50, 8, 8), (50, 8, 3), (50, 8, 1), (9, 8, 4), (10, 8, 8), (57, 8, 7)],
)
def test_every_token_but_the_first_is_scored_once(num_tokens, context, stride):
  scored = []
  for window in scoring.windows_of(num_tokens, context, stride):
    assert window.end - window.start <= context + 1
    assert window.start < window.first < window.end
    new = range(window.first, window.last)
    if scored:  # enough is seen before each of them
      assert new[0] - window.start >= min(context - stride + 1, new[0])
    scored += new
  assert scored == list(range(1, num_tokens))


@pytest.mark.parametrize('stride', [16, 5])
def test_log_probs_are_those_of_one_window_at_a_time(found, stride):
  (ids,) = found.tokenizer.encode_batch([TEXT])
  scores = scoring.score_tokens(
    found.model, found.params, ids, context=16, stride=stride
  )

  @jax.jit
  def log_probs_of(inputs):
    logits = found.model.apply(
      {'params': found.params},
      inputs,
      np.ones(inputs.shape, bool),
      np.arange(inputs.shape[1])[None],
      train=False,
    )['lm_logits'][0]
    return jax.nn.log_softmax(logits)

  for window in scoring.windows_of(len(ids), 16, stride):
    part = np.array([ids[window.start : window.end]])
    log_probs = np.asarray(log_probs_of(part[:, :-1]))
    for place in range(window.first, window.last):
      expected = log_probs[place - window.start - 1, ids[place]]
      assert scores[place - 1] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize('name', families.names_for('score'))
def test_a_text_shorter_than_the_context_is_one_window(name):
  """Of 16 positions, 17 tokens are all that they see."""
  found = small_trained('gpt2' if name == 'gpt2' else 'gpt', max_length=16)
  if name == 'lstm':
    vocab_size = found.tokenizer.vocab_size
    model = lstm_lm.LstmLm(vocab_size, 8, 16, num_layers=1, max_length=16)
    zeros = np.zeros((1, 8), np.int32)
    init = jax.jit(model.init, static_argnames='train')
    params = init(jax.random.key(0), zeros, zeros == 0, zeros, train=False)
    params = jax.tree.map(
      lambda leaf: 9 * np.asarray(leaf), nn.unbox(params)['params']
    )
    weights = found.weights._replace(model=model, params=params)
    found = TrainedModel(weights, use=None)
  apply = jax.jit(found.model.apply, static_argnames='train')
  for num_tokens in (2, 9, 17):
    (ids,) = found.encode([TEXT])
    text = found.tokenizer.decode(ids[:num_tokens])
    (ids,) = found.encode([text])
    assert len(ids) == num_tokens
    inputs = np.array([ids[:-1]])
    place = np.arange(num_tokens - 1)
    logits = apply(
      {'params': found.params}, inputs, inputs >= 0, place[None], train=False
    )['lm_logits'][0]
    expected = np.asarray(jax.nn.log_softmax(logits))[place, ids[1:]]
    figures, found_ids, log_probs = scoring.score_text(found, text)
    assert found_ids == ids
    np.testing.assert_allclose(log_probs, expected, atol=1e-5)
    assert figures['tokens'] == figures['scored_tokens'] + 1 == num_tokens
    assert figures['perplexity'] == pytest.approx(
      math.exp(-expected.mean()), rel=1e-5
    )


def test_figures_of_a_text(found):
  figures, ids, log_probs = scoring.score_text(
    found, TEXT, context=16, stride=8
  )
  nats = -log_probs.astype(np.float64).sum()
  assert figures['nats'] == pytest.approx(nats)
  assert figures['tokens'] == len(ids) == len(log_probs) + 1
  assert figures['perplexity'] == pytest.approx(math.exp(nats / len(log_probs)))
  words, line_ends = len(TEXT.split()), TEXT.count('\n')
  assert (figures['words'], figures['line_ends']) == (words, line_ends)
  assert figures['word_perplexity'] == pytest.approx(math.exp(nats / words))
  assert figures['word_perplexity_with_line_ends'] == pytest.approx(
    math.exp(nats / (words + line_ends))
  )
  bits = nats / math.log(2)
  assert figures['bits_per_byte'] == pytest.approx(bits / len(TEXT.encode()))
  assert figures['bits_per_character'] == pytest.approx(bits / len(TEXT))
  # What is scored is the text without the marks of its tokenisation.
  undone, other_ids, _ = scoring.score_text(
    found, TEXT, context=16, stride=8, detokenizer='wikitext'
  )
  assert found.tokenizer.decode(other_ids) == detokenize.DETOKENIZERS[
    'wikitext'
  ](TEXT)
  assert undone['words'] == figures['words']


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'context': 0}, '--context=0: expected 1 to'),
    ({'context': 10_000}, '--context=10000: expected 1 to'),
    ({'stride': 0}, '--stride=0: expected 1 to'),
    ({'context': 8, 'stride': 9}, '--stride=9: expected 1 to --context=8'),
    ({'text': ''}, 'the text has 0 tokens, expected 2 or more'),
    ({'text': 'a'}, 'the text has 1 token, expected 2 or more'),
  ],
)
def test_bad_numbers_are_refused(found, options, message):
  with pytest.raises(ValueError, match=message):
    scoring.score_text(found, **{'text': TEXT} | options)


def test_where_the_space_stands_does_not_matter(found):
  """Context and choice are one text."""
  results = scoring.score_choices(
    found,
    [
      {'context': 'The cat', 'choices': [' sat', ' on the mat']},
      {'context': 'The cat ', 'choices': ['sat', 'on the mat']},
    ],
  )
  for name in ('log_probs', 'mean_log_probs'):
    assert results[0][name] == pytest.approx(results[1][name])


def test_strides_that_leave_tokens_out_are_refused(found):
  with pytest.raises(ValueError, match='--stride=9: expected 1 to --context=8'):
    scoring.score_tokens(
      found.model, found.params, list(range(20)), context=8, stride=9
    )


def test_choices_are_scored_after_their_context(found):
  questions = [
    {'context': 'The cat', 'choices': [' sat', ' on the mat'], 'label': 1},
    {'context': 'It', 'choices': [' rained', ' all', ' sat']},
  ]
  results = scoring.score_choices(found, questions)
  for question, result in zip(questions, results, strict=True):
    assert result.get('label') == question.get('label')
    for place, choice in enumerate(question['choices']):
      context, ids = found.tokenizer.encode_batch([question['context'], choice])
      (values,) = scoring.score_sequences(
        found.model, found.params, [context + ids]
      )
      own = values[-len(ids) :]
      assert result['log_probs'][place] == pytest.approx(own.sum(), abs=1e-4)
      assert result['mean_log_probs'][place] == pytest.approx(
        own.mean(), abs=1e-4
      )
    assert result['choice'] == np.argmax(result['mean_log_probs'])
  with pytest.raises(ValueError, match='question 1: context and choice have'):
    scoring.score_choices(
      found, [{'context': TEXT * 9, 'choices': [' a', ' b']}]
    )
  with pytest.raises(ValueError, match='question 1: the context has no token'):
    scoring.score_choices(found, [{'context': '', 'choices': [' a', ' b']}])


def test_command(found, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(trained_model, 'TrainedModel', lambda *_, **__: found)
  text, table = tmp_path / 'text', tmp_path / 'log_probs.csv'
  text.write_text(TEXT)

  def run(*arguments):
    monkeypatch.setattr(sys, 'argv', ['score', 'W', *arguments])
    score.main()
    return capsys.readouterr()

  options = ['--context', '16', '--stride', '8']
  figures = json.loads(
    run(str(text), *options, '--json', '--log_probs', str(table)).out
  )
  expected, ids, log_probs = scoring.score_text(
    found, TEXT, context=16, stride=8
  )
  assert figures == pytest.approx(expected)
  with pytest.raises(SystemExit):
    run('--choices', str(text), '--log_probs', str(table))
  assert '--log_probs is of a TEXT' in capsys.readouterr().err
  with table.open() as file:
    rows = list(csv.DictReader(file))
  assert [int(row['id']) for row in rows] == ids[1:]
  assert [row['piece'] for row in rows] == [
    found.tokenizer.pieces[i] for i in ids[1:]
  ]
  np.testing.assert_allclose(
    [float(row['log_prob']) for row in rows], log_probs, rtol=1e-5
  )
  assert 'perplexity' in run(str(text), *options).out
  path = tmp_path / 'choices.jsonl'
  path.write_text(
    '{"context": "The cat", "choices": [" sat", " on"], "label": 0}\n'
  )
  report = json.loads(run('--choices', str(path), '--json').out)
  assert report['questions'] == 1 and report['accuracy'] in (0.0, 1.0)
  text.write_bytes(b'\xef\xbb\xbfa\r\nb')
  assert text_files.read_text(text) == 'a\nb'
  text.write_bytes(b'ab\xff')
  with pytest.raises(ValueError, match='not UTF-8 at byte 2'):
    text_files.read_text(text)


@pytest.mark.parametrize(
  'share', [0.1, pytest.param(0.4, marks=pytest.mark.slow)]
)
def test_wikitext_is_scored_as_by_hugging_face(
  share, torch, sesame_data, monkeypatch
):
  """The test set or a part, its own vocabulary of 600 pieces."""
  text = (sesame_data / 'wikitext-2' / 'wiki.test.tokens').read_text()
  assert detokenize.count_words(text) == 245_569  # line ends are words
  text = text[: round(share * len(text))]
  # Of a part there are several batches, too.
  monkeypatch.setattr(scoring, 'LOGITS_BYTES', share * scoring.LOGITS_BYTES)
  context = 128
  tokenizer = tokenization.train(
    [text], tokenization.parse_training('train:bytebpe:600')
  )
  sizes = dict(n_positions=context, n_embd=32, n_layer=2, n_head=2)
  torch.manual_seed(0)
  theirs = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(vocab_size=600, initializer_range=0.2, **sizes)
  ).eval()
  arrays = {key: value.numpy() for key, value in theirs.state_dict().items()}
  opened = pretrained.from_hugging_face(
    epath.Path('theirs'),
    'gpt2',
    theirs.config.to_dict(),
    published_cases.in_memory(arrays),
  )
  found = TrainedModel(opened._replace(tokenizer=tokenizer), use='score')
  (ids,) = tokenizer.encode_batch([detokenize.wikitext(text)])
  for stride in (context, context // 2):
    figures, *_ = scoring.score_text(
      found, text, context=context, stride=stride, detokenizer='wikitext'
    )
    total, count = 0.0, 0
    spans = list(range(0, len(ids) - 1, stride))
    for first in range(0, len(spans), 64):
      starts = spans[first : first + 64]
      rows = [ids[s : s + context + 1] for s in starts]
      width = max(map(len, rows))
      window = torch.zeros(len(rows), width, dtype=torch.long)
      weights = torch.zeros(len(rows), width - 1)
      for i, (start, row) in enumerate(zip(starts, rows, strict=True)):
        window[i, : len(row)] = torch.tensor(row)
        # All of the first window; then what the one before did not reach.
        reached = context - stride if start else 0
        weights[i, reached : len(row) - 1] = 1
      with torch.no_grad():
        logits = theirs(window[:, :-1]).logits
      losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), window[:, 1:], reduction='none'
      )
      total += float((losses * weights).double().sum())
      count += int(weights.sum())
    assert count == figures['scored_tokens'] == len(ids) - 1
    assert figures['perplexity'] == pytest.approx(
      math.exp(total / count), rel=1e-4
    )
  words = figures['words'] + figures['line_ends']
  assert words == detokenize.count_words(text)
