"""Units of a text, such as words and entities: which tokens begin a unit.

With units 'file', a tab in the text begins a unit. The tab is no part of the
text: the text is read without it, and keeps only the white space beside it.
With units 'jieba', a unit is a word of the segmenter jieba. Each sentence
begins a unit in any case.
"""

import functools
from collections.abc import Callable, Collection, Sequence

import numpy as np

from data.text.text_pieces import Piece, Source
from data.vocabulary import tokenization

# wordpiece: a piece with ## continues a word; nothing is stored.
KINDS = ('wordpiece', 'file', 'jieba')
MARK = '\t'

Spans = Sequence[tuple[int, int]]


def check_kind(kind: str) -> None:
  """Checks a kind of units, and that its package is there."""
  if kind not in KINDS:
    raise ValueError(f'units {kind!r}: expected one of {", ".join(KINDS)}')
  if kind == 'jieba':
    load_segmenter()


@functools.cache
def load_segmenter() -> Callable[[str], list[str]]:
  """Returns jieba's function text -> words, which joined are the text."""
  try:
    import jieba
  except ImportError:
    raise ValueError(
      "units 'jieba': the package jieba is not installed: pip install -e"
      " '.[jieba]'"
    ) from None
  jieba.setLogLevel('WARNING')  # it would tell of its dictionary
  return jieba.lcut


def kinds(source: Source, kind: str) -> list[str]:
  """Returns where units of a source come from, if any are stored.

  Raises ValueError if `kind` cannot be had of the source.
  """
  parts = source.parts.values() or [source]
  of_ids = [part.spec for part in parts if part.form == 'ids']
  if kind == 'wordpiece':
    return ['ids'] if of_ids else []
  if of_ids:
    raise ValueError(
      f'units {kind!r}: {of_ids[0]} has units of its own, expected'
      " 'wordpiece' for the rest of the text"
    )
  for part in parts:
    if kind == 'file' and part.form != 'text':
      raise ValueError(
        f"units 'file': {part.spec} holds records, expected files of plain"
        ' text with a tab before each unit'
      )
  return [kind]


def check_tokenizer(
  kinds: Collection[str],
  tokenizer: str,
  training: tokenization.Training | None,
  loaded: tokenization.Tokenizer | None,
) -> None:
  """Checks that a tokenizer can tell of units, and knows ids; else ValueError.

  `kinds` are by `kinds`.
  """
  if not kinds:
    return
  if training and 'ids' in kinds:
    raise ValueError(
      f'tokenizer {tokenizer!r}: expected the vocabulary of the ids that are'
      ' the text, such as the vocab.txt beside it'
    )
  if (
    training
    and training.kind != 'wordpiece'
    or (loaded and not isinstance(loaded, tokenization.WordPiece))
  ):
    raise ValueError(
      f'tokenizer {tokenizer!r}: expected one of WordPiece for a text with'
      f' units ({", ".join(kinds)}): whole units are masked by BERT alone'
    )


def plain(text: str, kind: str) -> str:
  """Returns a source's text without marks."""
  return text.replace(MARK, '') if kind == 'file' else text


def find_segmented(sentence: str, spans: Spans) -> np.ndarray:
  """Returns bool [n], tokens that begin where a word of jieba begins."""
  sizes = list(map(len, load_segmenter()(sentence)))
  bounds = np.cumsum([0, *sizes])
  return np.isin([start for start, _ in spans], bounds)


def find_marked(
  piece: Piece, sentences: Sequence[str], spans: Sequence[Spans]
) -> list[np.ndarray]:
  """Returns bool [n] of each sentence: tokens behind a mark.

  `sentences` are those of the piece's plain text, `spans` the places of their
  tokens. Raises ValueError, with file and line, for a mark inside a token.
  """
  # Characters that are no white space are the same here and there.
  parts = [len(''.join(part.split())) for part in piece.text.split(MARK)]
  marks = np.unique(np.cumsum(parts)[:-1])
  base, found = 0, []
  for sentence, places in zip(sentences, spans, strict=True):
    letters = np.frombuffer(sentence.encode('utf-32-le'), np.uint32) != ord(' ')
    before = base + np.concatenate([[0], np.cumsum(letters)])
    first, last = np.searchsorted(marks, [before[0], before[-1]])
    places = np.asarray(places, np.int64).reshape(-1, 2)
    if not len(places):
      found.append(np.zeros(0, bool))
      base = before[-1]
      continue
    starts, ends = before[places].T
    # The token at or behind each mark; the one before has to end by then.
    token = np.searchsorted(starts, marks[first:last])
    inside = (token > 0) & (ends[token - 1] > marks[first:last])
    if inside.any():
      start, end = places[token[inside][0] - 1]
      raise _misplaced(piece, marks[first:last][inside][0], sentence[start:end])
    flags = np.zeros(len(places) + 1, bool)
    flags[token] = True
    found.append(flags[:-1])
    base = before[-1]
  if base != sum(parts):
    raise ValueError(
      f'the sentences have {base:,} characters without white space, the text'
      f' {sum(parts):,}: they are not of one another'
    )
  return found


def _misplaced(piece: Piece, mark: int, token: str) -> ValueError:
  """Returns the error for a mark behind so many characters of a piece."""
  ends = np.cumsum([len(''.join(x.split())) for x in piece.text.split('\n')])
  number = piece.line + int(np.searchsorted(ends, mark, side='right'))
  return ValueError(
    f'{piece.file}, line {number:,}: a tab, which begins a unit,'
    f' stands inside {token!r}, one token of the vocabulary; expected it'
    ' between two tokens. Move it, or write a space beside it'
  )
