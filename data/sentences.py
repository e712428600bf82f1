"""Running text to sentences, and the recognition of one sentence a line."""

import functools
import re
from collections.abc import Iterator, Sequence

import nupunkt

# The longest text handed to the splitter at once, and so the longest sentence:
# its time is quadratic in text of nothing but marks (0.2 MB/s at this length).
MAX_SPAN = 10_000
# The longest line that may be called a sentence.
MAX_LINE = 5_000

_PARAGRAPH = re.compile(r'\n\s*\n')
# The splitter knows no CJK: these marks and the closing ones after them end a
# sentence whatever follows.
_CJK_MARKS = '。！？'
_CJK_SENTENCE = re.compile(
  '[^。！？]*[。！？]+[”’」』）】》〉)\\]"\']*|[^。！？]+'
)
_SENTENCE_START = re.compile(r'[\W_]*[^\W_]')
_SENTENCE_END = re.compile(r'[.!?…。！？][\s"\'”’»)\]}」』）】*]*$')


@functools.cache
def _splitter() -> nupunkt.PunktSentenceTokenizer:
  return nupunkt.load('default')


def split_sentences(text: str) -> list[str]:
  """Splits running text into sentences.

  A blank line ends a paragraph and a sentence; other line ends are spaces.

  Returns:
    The sentences in order, none empty, white space collapsed.
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
  """Whether a sample of lines is text of one sentence a line.

  Hard-wrapped text fails at the ends of its lines, a paragraph a line at the
  count of its sentences: 30 to 54 % of a novel's paragraphs are one sentence.
  The splitter misjudges 1 % of hand-split sentences (UD English EWT), and such
  text holds some headings: one line in 20 may fail where there are 100.

  Args:
    lines: blank ones are passed over.
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
