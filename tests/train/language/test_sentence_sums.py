"""Scores of sentences, against transformers and sums by hand."""

import pydoc_data.topics

import jax
import numpy as np
import pytest
import runs
import small_published
import word_models
from elmo_store import WORDS, build_words, write_topics

from data.ngrams import arpa
from data.store import corpus
from data.vocabulary import characters, tokenization
from models import elmo
from train.language import sentence_scorers, sentence_sums
from train.run import settings
from train.vectors.trained_model import TrainedModel

TOPICS = list(pydoc_data.topics.topics.values())[:20]
SENTENCES = [
  'The function returns a value.',
  'The functions return a value.',
  'A name is bound to an object, which the statement deletes.',
  'Nothing.',
  'If the list is empty, an undecipherable exception is raised.',
]


def tokenizer_of(kind):
  return tokenization.train(
    TOPICS, tokenization.parse_training(f'train:{kind}:400')
  )


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  """A folder with a small BERT, random, of large weights."""
  folder = tmp_path_factory.mktemp('bert')
  small_published.write_bert(
    folder, tokenizer_of('wordpiece'), initializer_range=0.3
  )
  return folder


@pytest.fixture(scope='module')
def gpt2(tmp_path_factory):
  folder = tmp_path_factory.mktemp('gpt2')
  small_published.write_gpt(
    folder, tokenizer_of('bytebpe'), initializer_range=0.3
  )
  return folder


def load(folder):
  return TrainedModel(folder, use=None)


def test_a_gpt2_sums_as_transformers(gpt2):
  """All pieces after <|endoftext|>, as lm-evaluation-harness has it."""
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  found = load(gpt2)
  theirs = transformers.GPT2LMHeadModel.from_pretrained(gpt2).eval()
  words = ' '.join(TOPICS).split()
  sentences = [' '.join(words[i : i + 2 + i % 9]) for i in range(200)]
  sums, sizes = sentence_sums.score(found, sentences)
  for sentence, total, size in zip(sentences, sums, sizes, strict=True):
    (ids,) = found.tokenizer.encode_batch([sentence])
    row = torch.tensor([[found.tokenizer.end_of_text_id, *ids]])
    with torch.no_grad():
      log_probs = theirs(row).logits[0, :-1].log_softmax(-1)
    expected = log_probs[range(len(ids)), ids].double().sum()
    assert total == pytest.approx(float(expected), abs=1e-4, rel=1e-6)
    assert size == len(ids)


def plain_pseudo(bert, found, sentence, within_word):
  """Hides one piece after the other, one row at a time."""
  import torch
  import transformers

  theirs = transformers.BertForMaskedLM.from_pretrained(bert).eval()
  tokenizer = found.tokenizer
  (ids,) = tokenizer.encode_batch([sentence])
  row = [tokenizer.cls_id, *ids, tokenizer.sep_id]
  total = 0.0
  for place in range(1, len(row) - 1):
    hidden = list(row)
    hidden[place] = tokenizer.mask_id
    later = place + 1
    while within_word and tokenizer.pieces[row[later]].startswith('##'):
      hidden[later] = tokenizer.mask_id
      later += 1
    with torch.no_grad():
      logits = theirs(torch.tensor([hidden])).logits[0, place]
    total += float(logits.log_softmax(-1)[row[place]])
  return total, len(ids)


@pytest.mark.parametrize('within_word', [False, True])
def test_pseudo_log_likelihood_is_a_plain_loop(bert, within_word):
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  found = load(bert)
  sums, sizes = sentence_sums.score(found, SENTENCES, within_word=within_word)
  for sentence, total, size in zip(SENTENCES, sums, sizes, strict=True):
    expected, count = plain_pseudo(bert, found, sentence, within_word)
    assert total == pytest.approx(expected, abs=1e-4, rel=1e-6)
    assert size == count
  if within_word:  # words of several pieces are there
    alone, _ = sentence_sums.score(found, SENTENCES)
    assert (alone != sums).any()


def test_holistic_is_the_mean_of_all_pieces_unmasked(bert):
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  found = load(bert)
  theirs = transformers.BertForMaskedLM.from_pretrained(bert).eval()
  means, sizes = sentence_sums.score(found, SENTENCES, scoring='holistic')
  for sentence, mean, size in zip(SENTENCES, means, sizes, strict=True):
    (ids,) = found.tokenizer.encode_batch([sentence])
    row = torch.tensor([[found.tokenizer.cls_id, *ids, found.tokenizer.sep_id]])
    with torch.no_grad():
      logits = theirs(row).logits[0]
    expected = -torch.nn.functional.cross_entropy(logits, row[0])
    assert mean == pytest.approx(float(expected), rel=1e-4)
    assert size == row.shape[1]


@pytest.fixture(scope='module')
def word_store(tmp_path_factory):
  folder = tmp_path_factory.mktemp('words')
  return corpus.open_store(
    build_words(write_topics(folder, 0, 30), folder / 'store')
  )


@pytest.mark.parametrize('name', ['bert', 'gpt2', 'nnlm', 'elmo'])
def test_scores_depend_on_the_sentence_alone(
  name, word_store, request, monkeypatch
):
  if name in ('nnlm', 'elmo'):
    found = word_models.trained(name, word_store.tokenizer)
  else:
    found = load(request.getfixturevalue(name))
  together, sizes = sentence_sums.score(found, SENTENCES)
  order = [3, 1, 4, 0, 2, 1]
  others, _ = sentence_sums.score(found, [SENTENCES[i] for i in order])
  np.testing.assert_allclose(others, together[order], rtol=1e-6)
  monkeypatch.setattr(sentence_sums, 'BATCH_TOKENS', 24)
  monkeypatch.setattr(sentence_sums, 'LONGEST', 1)
  small, _ = sentence_sums.score(found, SENTENCES)
  np.testing.assert_allclose(small, together, rtol=1e-6)
  assert (sizes > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['lstm', 'left to right'])
def test_models_of_ours_sum_what_they_are_trained_on(
  kind, small_store, tmp_path
):
  """The loss of a run on one row is minus the mean of the row's sum."""
  config = settings.load_config(
    'gpt_tiny:lstm' if kind == 'lstm' else 'bert_tiny'
  )
  changes = {
    'data.folder': str(small_store),
    'train.phases': ((2, 32, 8, 'continue'),),
    'eval.max_windows': 8,
  }
  if kind != 'lstm':
    changes |= {'model.left_to_right': True, 'train.objective': 'lm'}
  runs.train(settings.with_overrides(config, changes), tmp_path / 'run')
  found = load(tmp_path / 'run')
  sentence_sums.check_model(found)
  sums, sizes = sentence_sums.score(found, SENTENCES)
  begin = [] if kind == 'lstm' else [found.tokenizer.cls_id]
  for sentence, total, size in zip(SENTENCES, sums, sizes, strict=True):
    (ids,) = found.tokenizer.encode_batch([sentence])
    row = np.array([[*begin, *ids]])
    at = np.arange(row.shape[1])[None]
    inputs = row, at >= 0, at
    if kind != 'lstm':
      inputs = row, at >= 0, np.zeros_like(row), at, at
    outputs = found.model.apply({'params': found.params}, *inputs, train=False)
    logits = outputs['lm_logits' if kind == 'lstm' else 'mlm_logits'][0]
    log_probs = jax.nn.log_softmax(logits)[:-1]
    expected = log_probs[np.arange(len(log_probs)), row[0, 1:]].sum()
    assert total == pytest.approx(float(expected), rel=1e-5)
    assert size == len(log_probs)


def test_an_nnlm_sums_what_it_predicts(word_store):
  """All words after the first, one row at a time."""
  tokenizer = word_store.tokenizer
  found = word_models.trained('nnlm', tokenizer)
  sums, sizes = sentence_sums.score(found, SENTENCES)
  for sentence, total, size in zip(SENTENCES, sums, sizes, strict=True):
    (ids,) = found.tokenizer.encode_batch([sentence])
    row = np.array([ids])
    logits = found.model.apply(
      {'params': found.params}, row, row >= 0, row, train=False
    )['lm_logits'][0]
    log_probs = jax.nn.log_softmax(logits)[:-1]
    expected = log_probs[np.arange(len(ids) - 1), row[0, 1:]].sum()
    assert total == pytest.approx(float(expected), rel=1e-5)
    assert size == len(ids) - 1


def test_an_elmo_reads_both_ways(word_store):
  """Against one sentence at a time, without any padding."""
  tokenizer = word_store.tokenizer
  found = word_models.trained('elmo', tokenizer)
  some = [tokenizer.pieces[i] for i in (5, 9, 30, 7, 12)]
  texts = [' '.join(some), f'{some[0]} zyzzyva {some[1]}', some[2]]

  @jax.jit
  def read(*inputs):
    return found.model.apply(
      {'params': found.params}, *inputs, train=False, method='read_on'
    )

  sums, sizes = sentence_sums.score(found, texts)
  assert sizes.tolist() == [10, 6, 2]
  directions = [
    sentence_sums.score(found, texts, scoring=way)
    for way in ('forward', 'backward')
  ]
  for number, (text, total) in enumerate(zip(texts, sums, strict=True)):
    words = text.split()
    expected = 0.0
    for tower, stream in enumerate((words, words[::-1])):
      begin = ['<S>', '</S>'][tower]
      letters, _ = characters.encode_words([begin, *stream])
      ids = [
        tokenizer.pieces.index(word) if word in tokenizer.pieces else 2
        for word in stream
      ]
      ids = np.where(np.array(ids) < WORDS, ids, 2)
      rows = np.stack([letters[None, :-1]] * 2)
      targets = np.stack([ids[None]] * 2).astype(np.int32)
      zeros = elmo.empty_state(found.model, 1)
      outputs = read(
        # Words of one number are encoded once.
        np.arange(targets.size, dtype=np.int32).reshape(targets.shape),
        rows,
        targets,
        *(np.moveaxis(array, 2, 0) for array in zeros),
      )
      expected -= (alone := float(outputs['losses'][tower].sum()))
      of_tower, counts = directions[tower]
      assert of_tower[number] == pytest.approx(-alone, rel=1e-5)
      assert counts[number] == len(words)
    assert total == pytest.approx(expected, rel=1e-5)


def test_an_elmo_reads_sentences_once_for_all_ways(word_store, monkeypatch):
  tokenizer = word_store.tokenizer
  found = word_models.trained('elmo', tokenizer)
  scorer = sentence_scorers.ModelScorer(found)
  assert scorer.scorings == ('sum', 'forward', 'backward')
  sentences = [' '.join(tokenizer.pieces[5:9]), tokenizer.pieces[12]] * 2
  expected = {
    way: sentence_sums.score(found, sentences, scoring=way)
    for way in scorer.scorings
  }
  read = []
  log_probs = sentence_sums.log_probs
  monkeypatch.setattr(
    sentence_sums,
    'log_probs',
    lambda *given: read.append(given) or log_probs(*given),
  )
  for way in scorer.scorings:
    sums, sizes, _ = scorer.score(sentences, scoring=way)
    np.testing.assert_array_equal((sums, sizes), expected[way])
  assert len(read) == 1
  others = sentences[:1]
  sums, _, _ = scorer.score(others, scoring='backward')
  np.testing.assert_allclose(sums, expected['backward'][0][:1], rtol=1e-5)


ARPA = """\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-99\t<s>\t-0.5
-1.0\t</s>
-2.0\t<unk>
-0.7\ta\t-0.3

\\2-grams:
-0.2\t<s> a
-0.4\ta a
-0.1\ta </s>

\\end\\
"""


def test_n_grams_are_summed_by_hand(tmp_path):
  (tmp_path / 'x.arpa').write_text(ARPA)
  model = arpa.read(tmp_path / 'x.arpa')
  sums, sizes = sentence_sums.score_by_ngrams(model, ['a a', 'a b', 'a'])
  by_hand = [-0.2 - 0.4 - 0.1, -0.2 + (-0.3 - 2.0) - 1.0, -0.2 - 0.1]
  np.testing.assert_allclose(sums, np.log(10) * np.array(by_hand), rtol=1e-5)
  assert sizes.tolist() == [3, 3, 2]


def test_what_cannot_be_scored_is_named(bert, tmp_path):
  found = load(bert)
  with pytest.raises(ValueError, match='has 702 pieces .* expected 3 to 64 by'):
    sentence_sums.score(found, ['the ' * 700])
  small_published.write_bert(
    tmp_path, tokenizer_of('wordpiece'), kind='BertModel'
  )
  with pytest.raises(ValueError, match=r'no head for masked pieces \(mlm\)'):
    sentence_sums.check_model(load(tmp_path), 'sum')


def test_only_a_bert_is_scored_unmasked(gpt2):
  with pytest.raises(ValueError, match='--scoring=holistic: .* of gpt2, which'):
    sentence_sums.check_model(load(gpt2), 'holistic')


def test_a_row_is_not_padded_beyond_what_a_bert_reads(tmp_path):
  """A longest row of 50 is on no grid of lengths."""
  small_published.write_bert(
    tmp_path, tokenizer_of('wordpiece'), max_position_embeddings=50
  )
  found = load(tmp_path)
  sentence = ' '.join(['the'] * 47)
  sums, sizes = sentence_sums.score(found, [sentence], scoring='holistic')
  assert sizes == 49 and np.isfinite(sums).all()
