"""Inputs of commands, checked before any model is loaded."""

from etils import epath

from data.tasks import registry
from data.tasks.examples import Example
from data.tasks.senses.occurrences import Occurrence
from train.vectors import text_counts

# The splits that are read, the last one if it has labels, and the metrics in
# the order of a cell; the best layer is chosen by the first.
SETS = {
  'stsb': (('dev', 'test'), ('spearman', 'pearson')),
  'mrpc': (('train', 'dev', 'test'), ('accuracy', 'f1')),
}


def find_word(
  path: epath.PathLike, word: str, running: bool
) -> list[Occurrence]:
  """Returns each place of a word in a file of a sentence a line.

  Words are found by `text_counts.splitter`, and compared without case. Raises
  ValueError, with the number of the line, for a sentence without the word; and
  if `word` is not one word.
  """
  split = text_counts.splitter(running)
  if split(word) != [word]:
    raise ValueError(
      f'--word={word!r}: expected one word, found {len(split(word))}:'
      f' {split(word)}'
    )
  text_counts.count(path, split)  # refuses empty files and endless lines
  wanted = word.casefold()
  found = []
  for number, line in enumerate(text_counts.lines(path), start=1):
    words = tuple(split(line))
    places = [i for i, each in enumerate(words) if each.casefold() == wanted]
    if not places:
      within = wanted in line.casefold()
      hint = ' as a word of its own; is it running text, for --running?'
      raise ValueError(
        f'{path}, line {number:,}: found no {word!r}{hint if within else ""}:'
        f' {line[:60]!r}; expected the word in every sentence'
      )
    where = f'{path}, line {number:,}'
    found += [Occurrence(where, words, place) for place in places]
  return found


def read_translations(
  first: epath.PathLike, second: epath.PathLike
) -> list[list[str]]:
  """Returns the lines of two files; line i of one translates the other's.

  Raises ValueError, with the file and the number of the line, for an empty
  line, files of one line or of different lengths, and equal files.
  """
  texts = []
  for path in (first, second):
    text_counts.count(path, str.split)  # refuses empty files and endless lines
    texts.append(list(text_counts.lines(path)))
    for number, line in enumerate(texts[-1], start=1):
      if not line.strip():
        raise ValueError(
          f'{path}, line {number:,}: found an empty line, expected a sentence'
          ' and its translation on the same line of the other file'
        )
    if len(texts[-1]) == 1:
      raise ValueError(f'{path}: found 1 line, expected 2 or more')
  count, other = map(len, texts)
  if count != other:
    raise ValueError(
      f'{second}: found {other:,} lines, expected {count:,}, a translation of'
      f' each line of {first}'
    )
  if texts[0] == texts[1]:
    raise ValueError(
      f'{second}: found the lines of {first}, expected their translations'
    )
  return texts


def parse_shifts(text: str) -> tuple[int, ...]:
  """Returns the shifts of --shift, as in 0,1,2,4."""
  parts = text.split(',')
  if not all(part.strip().isdecimal() for part in parts):
    raise ValueError(
      f'--shift={text}: expected numbers of positions from 0 on, as in'
      ' --shift=0,1,2,4'
    )
  shifts = tuple(map(int, parts))
  if len(set(shifts)) < len(shifts):
    raise ValueError(f'--shift={text}: found a number twice, expected it once')
  return shifts


def read_sets(source: str) -> dict[str, dict[str, list[Example]]]:
  """Returns the labelled splits of each set in a folder of GLUE, by name.

  For the source and the errors see `registry.load`. A missing test set, or one
  without labels (as GLUE's of STS-B), is left out.
  """
  sets: dict[str, dict[str, list[Example]]] = {}
  for name, (splits, _) in SETS.items():
    task = registry.find(name)
    sets[name] = {}
    for split in splits:
      if split == 'test' and not registry.has_split(task, source, split):
        continue
      examples = registry.load(task, source, split)
      if all(example.is_labelled for example in examples):
        sets[name][split] = examples
  return sets
