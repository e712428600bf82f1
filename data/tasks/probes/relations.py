"""SemEval 2010 task 8: the relation of two marked words in a sentence."""

import random
import re
from collections.abc import Iterator

from etils import epath

from data.tasks import files
from data.tasks.probes import targets
from data.tasks.probes.targets import Probe, Sentence, Span, Target

NEGATIVE = 'Other'
# The set has no development split: 15 % of the training, as jiant splits it.
TRAINING_SHARE, SEED = 0.85, 42
_MARKED = re.compile(
  r'(?P<a><e1>)(?P<one>.*)(?P<b></e1>)(?P<middle>.*)'
  r'(?P<c><e2>)(?P<two>.*)(?P<d></e2>)'
)
_NUMBERED = re.compile(r'\d+\t"(.*)"\s*')
_LABEL = re.compile(r'[\w-]+(\(e[12],e[12]\))?')


def _rows(file: epath.Path, split: str) -> targets.Found:
  """Yields the sentences of a split; train and dev lie in one file."""
  found = list(_sentences(file))
  if split == 'test':
    yield from found
    return
  order = list(range(len(found)))
  random.Random(SEED).shuffle(order)
  count = round(TRAINING_SHARE * len(order))
  chosen = order[:count] if split == 'train' else order[count:]
  for number in sorted(chosen):
    yield found[number]


def _sentences(file: epath.Path) -> Iterator[tuple[str, Sentence]]:
  lines = iter(files.read_lines(file))
  for number, text in lines:
    if not text.strip() or text.startswith('Comment:'):
      continue
    where = f'{file}, line {number:,}'
    numbered = _NUMBERED.fullmatch(text)
    marked = numbered and _MARKED.search(numbered[1])
    if not marked:
      raise ValueError(
        f'{where}: found {text[:80]!r}, expected a number, a tab and a sentence'
        ' in quotes with <e1>...</e1> before <e2>...</e2>'
      )
    number, text = next(lines, (number + 1, ''))
    label = text.strip()
    if not _LABEL.fullmatch(label):
      raise ValueError(
        f'{file}, line {number:,}: found {label[:80]!r}, expected the relation'
        ' of the sentence above, such as Cause-Effect(e1,e2)'
      )
    words, spans = _split(where, numbered[1], marked)
    yield where, Sentence(words, (Target(spans, (label,)),))


def _split(
  where: str, text: str, marked: re.Match[str]
) -> tuple[tuple[str, ...], tuple[Span, Span]]:
  """Returns the words without marks, and the spans of the marked ones."""
  from data.vocabulary import words as words_lib  # imports tokenizers

  plain = text[: marked.start()]
  ranges = []
  for name in ('one', 'middle', 'two'):
    begin = len(plain)
    plain += marked[name]
    ranges.append((begin, len(plain)))
  plain += text[marked.end() :]
  parts = words_lib.split_with_spans(plain, 'marks')
  spans = []
  for begin, end in (ranges[0], ranges[2]):
    inside = [i for i, (_, a, b) in enumerate(parts) if a < end and b > begin]
    if not inside:
      raise ValueError(
        f'{where}: found no word between the marks of {text[:80]!r}'
      )
    spans.append((inside[0], inside[-1] + 1))
  return tuple(word for word, _, _ in parts), (spans[0], spans[1])


_TRAIN = (
  'SemEval2010_task8_training/TRAIN_FILE.TXT',
  'TRAIN_FILE.TXT',
)
PROBES = (
  Probe(
    name='relations',
    title='Relations',
    num_spans=2,
    rows=_rows,
    files={
      'train': _TRAIN,
      'dev': _TRAIN,
      'test': (
        'SemEval2010_task8_testing_keys/TEST_FILE_FULL.TXT',
        'TEST_FILE_FULL.TXT',
      ),
    },
    folders=('semeval2010_task8', 'SemEval2010_task8_all_data'),
    corpus='semeval2010_task8',
    is_scored=lambda label: label != NEGATIVE,
    url='https://semeval2.fbk.eu/semeval2.php?location=tasks#T11',
  ),
)
