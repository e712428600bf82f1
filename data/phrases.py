"""Joins words that belong together: python -m data.phrases TEXT OUTPUT.

  python -m data.phrases 'books/*.txt' joined.txt --thresholds 200 100

New York becomes New_York, a word of its own for word2vec. Words are separated
by white space, and no phrase crosses the end of a line. Each threshold is a
pass over the result of the pass before. A pair of words is joined if its score,
(count of the pair - delta) / (product of the counts of both words) * (number of
words), exceeds the threshold.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence

from etils import epath

from data import program, scratch, storage
from data.steady_errors import SteadyErrors
from data.text import text_files
from data.vocabulary.word2vec import phrases


def main(arguments: Sequence[str] | None = None) -> int:
  """Joins phrases as the arguments say; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog=program.called('data.phrases'),
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  add('text', help='text to read: a file or a glob, also of .gz, .xz or .zst')
  add('output', help='text file to write, on this machine')
  add(
    '--thresholds',
    type=float,
    nargs='+',
    action='extend',
    help='a threshold for each pass; lower ones join more pairs; by default one'
    ' pass with 100',
  )
  add(
    '--delta',
    type=int,
    default=5,
    help='subtracted from the count of a pair; rarer pairs and words are never'
    ' joined; by default %(default)s',
  )
  add('--lower', action='store_true', help='write all words in lower case')
  args = parser.parse_args(arguments)
  scratch.end_on_sigterm()
  with SteadyErrors():
    return _join(args)


def _join(args: argparse.Namespace) -> int:
  """Joins phrases; returns the exit code."""
  try:
    storage.check_buckets([args.text])
    if storage.is_remote(args.output):
      raise ValueError(
        f'{args.output}: the text is written to this machine alone, expected a'
        ' path without gs://. Copy it there afterwards'
      )
    args.output = pathlib.Path(args.output)
    _write(args)
  except KeyboardInterrupt:
    print('error: interrupted; nothing was left in place', file=sys.stderr)
    return 130
  except (OSError, ValueError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 1
  return 0


def _write(args: argparse.Namespace) -> None:
  args.thresholds = args.thresholds or [100.0]
  if min(args.thresholds) < 0 or args.delta < 1:
    raise ValueError(
      f'--thresholds {args.thresholds} --delta {args.delta}: expected'
      ' thresholds of 0 or more and a delta of 1 or more'
    )
  if args.output.suffix in text_files.COMPRESSED:
    raise ValueError(
      f'{args.output}: expected a name without'
      f' {", ".join(text_files.COMPRESSED)}: the text is not compressed'
    )
  text = text_files.find_running(args.text)
  with scratch.beside(args.output) as folder:
    for number, threshold in enumerate(args.thresholds, 1):
      found = phrases.count(_lines(text, args.lower))
      if not found.num_words:
        raise ValueError(f'{args.text}: no words, expected a text')
      new, num_joined = folder / f'{number}.txt', 0
      with new.open('w', encoding='utf-8') as file:
        for line in phrases.join(
          _lines(text, args.lower), found, threshold, args.delta
        ):
          num_joined += len(line.split())
          file.write(line + '\n')
      print(
        f'pass {number}: {found.num_words:,} words, {num_joined:,} with phrases'
        f' joined at {threshold:g}'
      )
      text = [epath.Path(new)]
    new.replace(args.output)


def _lines(files: Iterable[epath.Path], lower: bool) -> Iterator[str]:
  for path in files:
    for line in text_files.lines_of(path):
      yield line.lower() if lower else line


if __name__ == '__main__':
  sys.exit(main())
