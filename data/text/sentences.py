"""Running text to sentences, and the recognition of one sentence a line.

BERT reads sentences without white space around them; for tokenizers that keep
white space, `cut_text` cuts near the ends of sentences, between two tokens.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence

import nupunkt

# The longest text given to the splitter at once, so the longest sentence: its
# time is quadratic in text of nothing but marks (0.2 MB/s at this length).
MAX_SPAN = 10_000
# The longest line that may be called a sentence.
MAX_LINE = 5_000

_PARAGRAPH = re.compile(r'\n\s*\n')
# The splitter knows no CJK: these marks, with closing ones, end a sentence.
_CJK_MARKS = '。！？'
_CJK_SENTENCE = re.compile(
  '[^。！？]*[。！？]+[”’」』）】》〉)\\]"\']*|[^。！？]+'
)
_SENTENCE_START = re.compile(r'[\W_]*[^\W_]')
_SENTENCE_END = re.compile(r'[.!?…。！？][\s"\'”’»)\]}」』）】*]*$')

_WORD = re.compile(r'\S+')
# Unicode's white space, as GPT-2's: without Python's U+001C to U+001F.
WHITE_SPACE = '\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000'
# Text may be cut before a match; the first pattern of each kind also leaves
# whole lines. For GPT cut before a run of white space: any part of it with a
# newline would be a token. In GPT-2's pattern the last white-space character of
# a run belongs to the next word, or is a token if no space, and the run before
# it is a token: only there do both sides have the tokens of the whole.
PLACES = {
  'newlines': (re.compile(r'(?<=\S)\n'), re.compile(r'(?<=\S)\s')),
  'kept': (
    re.compile(f'\n(?=[^{WHITE_SPACE}])'),
    re.compile(f'[{WHITE_SPACE}](?=[^{WHITE_SPACE}])'),
  ),
}


@functools.cache
def _splitter() -> nupunkt.PunktSentenceTokenizer:
  return nupunkt.load('default')


def split_sentences(text: str) -> list[str]:
  """Splits running text into sentences, none empty, white space collapsed.

  A blank line ends a paragraph and a sentence; other line ends are spaces.
  """
  split = _splitter().tokenize
  found = []
  for paragraph in _PARAGRAPH.split(text):
    for span in _spans(' '.join(paragraph.split())):
      for sentence in split(span):
        if sentence := sentence.strip():
          found.append(sentence)
  return found


def split_lines(text: str) -> list[str]:
  """Returns the non-blank lines of one sentence each, white space collapsed."""
  lines = (' '.join(line.split()) for line in text.split('\n'))
  return [line for line in lines if line]


def cut_ids(ids: Sequence[int], letters: Sequence[str]) -> list[str]:
  """Cuts a Chinese text of ids at its marks; a character stands for an id.

  `letters` has one character for each id of the vocabulary.
  """
  return _CJK_SENTENCE.findall(''.join(map(letters.__getitem__, ids)))


def cut_text(text: str, found: Sequence[str], white_space: str) -> list[str]:
  """Cuts a text near the ends of its sentences; the parts joined are the text.

  `found` are the sentences by `split_sentences` or `split_lines`; `white_space`
  is 'newlines' or 'kept'. No part is empty or ends inside a word.
  """
  place = PLACES[white_space][1]
  sizes = (sum(map(len, sentence.split())) for sentence in found)
  ends = set(itertools.accumulate(sizes))
  size = previous = 0
  cuts = [0]
  for word in _WORD.finditer(text):
    if size in ends:
      match = place.search(text, previous)
      if match and cuts[-1] < match.start() < word.start():
        cuts.append(match.start())
    size += word.end() - word.start()
    previous = word.end()
  if size != max(ends, default=0):
    raise ValueError(
      f'the sentences have {max(ends, default=0):,} characters without white '
      f'space, the text {size:,}: they are not of one another'
    )
  return [
    text[start:stop]
    for start, stop in itertools.pairwise([*cuts, len(text)])
    if stop > start
  ]


def find_place(text: str, low: int, high: int, white_space: str) -> int:
  """Returns the last of low..high - 1 where text may be cut, or -1.

  `low` is at least 1, and a character follows the range; see also `PLACES`.
  """
  for pattern in PLACES[white_space]:
    width = 1 << 12
    start = high
    while start > low:
      stop, start = start, max(low, high - width)
      width *= 4
      last = -1
      for match in pattern.finditer(text, start):
        if match.start() >= stop:
          break
        last = match.start()
      if last >= 0:
        return last
  return -1


def _spans(paragraph: str) -> Iterator[str]:
  """Cuts a paragraph at CJK sentence ends and into spans of bounded length."""
  if any(mark in paragraph for mark in _CJK_MARKS):
    parts = _CJK_SENTENCE.findall(paragraph)
  else:
    parts = [paragraph]
  for part in parts:
    while len(part) > MAX_SPAN:
      for mark in ('. ', ' '):
        at = part.rfind(mark, MAX_SPAN // 2, MAX_SPAN) + len(mark)
        if at >= len(mark):
          break
      else:
        at = MAX_SPAN
      yield part[:at]
      part = part[at:]
    if part:
      yield part


def is_sentence_per_line(lines: Sequence[str]) -> bool:
  """Returns whether a sample of lines is text of one sentence a line.

  Blank lines are skipped. Hard-wrapped text fails at the ends of its lines,
  text of one paragraph a line at its sentences: 30 to 54 % of a novel's
  paragraphs are one sentence. The splitter misjudges 1 % of hand-split
  sentences (UD English EWT), and some lines are headings: of 100 lines 5 may
  fail.
  """
  lines = [line for line in lines if line.strip()]
  allowed = len(lines) // 20 if len(lines) >= 100 else 0
  for line in lines:
    if not _is_sentence(line):
      allowed -= 1
      if allowed < 0:
        return False
  return bool(lines)


def _is_sentence(line: str) -> bool:
  line = line.strip()
  start = _SENTENCE_START.match(line)
  return (
    start is not None
    and not start.group()[-1].islower()
    and len(line) <= MAX_LINE
    and _SENTENCE_END.search(line) is not None
    and len(split_sentences(line)) == 1
  )
