"""Units of a text in the store: of ERNIE's lines, marked, and segmented."""

import sys

import numpy as np
import pytest
from text_stores import build_quietly

from data.store import corpus, units


def starts_of(store):
  return corpus.starts_units(store.units, np.arange(store.num_tokens))


def sentences_of(store):
  """The pieces of each sentence, one with a bar before it begins a unit."""
  pieces, starts = store.tokenizer.pieces, starts_of(store)
  return [
    ' '.join(
      '|' * bool(starts[at]) + pieces[store.tokens[at]]
      for at in range(first, end)
    )
    for first, end in zip(
      store.sentences[:-1], store.sentences[1:], strict=True
    )
  ]


# ---- Lines of ids -----------------------------------------------------------


@pytest.fixture(scope='module')
def demo(sesame_data):
  return sesame_data / 'ernie_demo'


@pytest.fixture(scope='module')
def read(demo, tmp_path_factory):
  """A store of a part of ERNIE's demonstration, and the part's lines."""
  folder = tmp_path_factory.mktemp('ernie')
  lines = (demo / 'demo_train_set.txt').read_text().splitlines()[:600]
  (folder / 'lines.txt').write_text('\n'.join(lines) + '\n')
  out = folder / 'store'
  audit = build_quietly(
    f'ernie:{folder}/lines.txt', str(demo / 'vocab.txt'), out
  )
  fields = [
    [np.array(field.split(), int) for field in line.split(';')]
    for line in lines
  ]
  return corpus.open_store(out), audit, fields


def test_ids_and_units_are_as_released(read):
  store, audit, fields = read
  bounds = np.concatenate([bounds for _, _, _, bounds, _ in fields])
  ids = np.concatenate([ids for ids, *_ in fields])
  assert np.array_equal(store.tokens, ids[bounds >= 0])
  assert np.array_equal(starts_of(store), bounds[bounds >= 0] == 0)
  assert audit['units']['of'] == ['ids']
  assert audit['units']['count'] == np.count_nonzero(bounds == 0)
  sizes = np.diff(np.flatnonzero(np.append(bounds[bounds >= 0], 0) == 0))
  assert audit['units']['longest'] == sizes.max()
  assert audit['warnings'] == []


def test_documents_are_texts_that_follow_one_another(read):
  store, _, fields = read
  sizes = []
  for ids, _, _, _, label in fields:
    first, second = np.diff(np.flatnonzero(ids == 2), prepend=0) - 1
    sizes += [first + second] if label == 1 else [first, second]
  assert np.diff(store.sentences[store.documents]).tolist() == sizes
  # Sentences end behind a full stop, or where a text ends.
  marks = [store.tokenizer.pieces.index(mark) for mark in '。！？']
  ends = np.isin(store.tokens[store.sentences[1:] - 1], marks).mean()
  assert ends > 0.7 and store.num_sentences > 2 * len(fields)


@pytest.mark.parametrize(
  ('line', 'tokenizer', 'message'),
  [
    ('1 2 2;0 0 1;0 1 2;-1 -1 -1;1', None, r'lines.txt, line 2: found the bo'),
    ('1 17964 2 5 2;0 0 0 1 1;0 1 2 3 4;-1 0 -1 0 -1;1', None, 'id 17964'),
    ('', None, 'lines.txt, line 2: found 1 fields'),
    (None, 'train:wordpiece:100', 'expected the vocabulary of the ids'),
    (None, 'train:words:100', 'expected the vocabulary of the ids'),
  ],
)
def test_bad_ids_are_named(demo, tmp_path, line, tokenizer, message):
  first = '1 5 2 6 2;0 0 0 1 1;0 1 2 3 4;-1 0 -1 0 -1;1'
  lines = [first, first if line is None else line, first]
  (tmp_path / 'lines.txt').write_text('\n'.join(lines) + '\n')
  tokenizer = tokenizer or str(demo / 'vocab.txt')
  with pytest.raises(ValueError, match=message):
    build_quietly(f'ernie:{tmp_path}/lines.txt', tokenizer, tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


# ---- Marks in the text -------------------------------------------------------

MARKED = (
  '他\t在\t北京\t大学\t读书\t。\t天气\t很\t好！\n',
  'He\t lives\t in New York\t, in\t 3rd Street\t.\n',
  'Übermut\t tut selten gut\t.\n',
)
PLAIN = ''.join(MARKED).replace('\t', '')
PIECES = [
  '[PAD]',
  '[UNK]',
  '[CLS]',
  '[SEP]',
  '[MASK]',
  '.',
  ',',
  '。',
  '！',
  *'他在北京大学读书天气很好',
  *('he', 'lives', 'in', 'new', 'york', '3', '##rd', 'street', 'tu', '##t'),
  *('uber', '##mut', 'selten', 'gut', 'up'),
]


@pytest.fixture
def vocabulary(tmp_path):
  (tmp_path / 'vocab.txt').write_text('\n'.join(PIECES))
  return str(tmp_path / 'vocab.txt')


def build_marked(tmp_path, vocabulary, text, kind='file', name='text.txt'):
  (tmp_path / name).write_text(text)
  return build_quietly(
    tmp_path / name, vocabulary, tmp_path / 'store', unit_source=kind
  )


def test_tabs_begin_units_and_are_no_text(tmp_path, vocabulary):
  audit = build_marked(tmp_path, vocabulary, ''.join(MARKED * 30))
  marked = corpus.open_store(tmp_path / 'store')
  with pytest.raises(ValueError, match="unit_source .'file' in the store, ask"):
    build_quietly(tmp_path / 'text.txt', vocabulary, tmp_path / 'store')
  assert sentences_of(marked)[:4] == [
    '|他 |在 |北 京 |大 学 |读 书 |。',
    '|天 气 |很 |好 ！',
    '|he |lives |in new york |, in |3 ##rd street |.',
    '|uber ##mut |tu ##t selten gut |.',
  ]
  assert audit['units']['count'] == 18 * 30 and audit['units']['longest'] == 4
  (tmp_path / 'plain.txt').write_text(PLAIN * 30)
  build_quietly(tmp_path / 'plain.txt', vocabulary, tmp_path / 'plain')
  plain = corpus.open_store(tmp_path / 'plain')
  for name in ('tokens', 'sentences', 'documents', 'held_out'):
    assert np.array_equal(getattr(marked, name), getattr(plain, name)), name
  assert plain.units is None
  assert plain.meta['digest'] != marked.meta['digest']


def test_a_sentence_without_tokens_may_have_a_tab(tmp_path, vocabulary):
  lines = 'He\t lives.\n', 'Up\t in New York.\n'
  text = lines[0] + '\t\u200b\n' + ''.join(lines[::-1] * 30)
  build_marked(tmp_path, vocabulary, text + '\n' + text)
  store = corpus.open_store(tmp_path / 'store')
  found = [sentence for sentence in sentences_of(store) if sentence]
  assert found[:2] == ['|he |lives .', '|up |in new york .']


@pytest.mark.parametrize(
  ('text', 'name', 'message'),
  [
    (
      'He\t is.\n\nHe\t lives up\t. He li\tves.\n',
      'text.txt',
      r"text.txt, line 3: a tab, which begins a unit, stands inside 'lives'",
    ),
    (PLAIN, 'text.txt', 'text.txt. has no tab inside a sentence'),
    ('{"text": "He\\t lives."}\n', 'a.jsonl', 'a.jsonl holds records, expe'),
  ],
)
def test_marks_that_do_not_fit_are_named(
  tmp_path, vocabulary, text, name, message
):
  with pytest.raises(ValueError, match=message):
    build_marked(tmp_path, vocabulary, text, name=name)
  assert not (tmp_path / 'store').exists()


def test_units_need_pieces_and_a_known_kind(tmp_path, vocabulary):
  with pytest.raises(ValueError, match='expected one of WordPiece for a text'):
    build_marked(tmp_path, 'train:bpe:300', PLAIN)
  with pytest.raises(ValueError, match="units 'words': expected one of wordp"):
    build_marked(tmp_path, vocabulary, PLAIN, 'words')


# ---- Segmented ---------------------------------------------------------------


def test_words_of_jieba_are_units(tmp_path, vocabulary):
  build_marked(tmp_path, vocabulary, PLAIN * 30, 'jieba')
  store = corpus.open_store(tmp_path / 'store')
  assert sentences_of(store)[:4] == [
    '|他 |在 |北 京 大 学 |读 书 |。',
    '|天 气 |很 |好 |！',
    '|he |lives |in |new |york |, |in |3 ##rd |street |.',
    '|uber ##mut |tu ##t |selten |gut |.',
  ]


def test_without_jieba_the_cure_is_told(tmp_path, vocabulary, monkeypatch):
  units.load_segmenter.cache_clear()
  monkeypatch.setitem(sys.modules, 'jieba', None)
  with pytest.raises(ValueError, match=r"pip install -e\s+'.\[jieba\]'"):
    build_marked(tmp_path, vocabulary, PLAIN, 'jieba')
