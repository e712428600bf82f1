"""Writes a set of long texts: who wrote a passage of 180 words?

  python tests/bench/long_texts.py NOVELS sets/authors
  python -m train.sweep --config transfer:task=own,recipe=bert --seeds 3 \\
    --config.own.kind=classification --config.data.source=sets/authors \\
    --config.own.train=train.parquet --config.own.dev=dev.parquet \\
    --config.own.label=author --grid 'task.long_text=head,tail,both,windows' \\
    --config.task.max_length=64 --config.task.doc_stride=62 \\
    --config.optim.learning_rate=1e-4 --config.train.num_epochs=4 \\
    --config.init.weights=MINILM --workdir runs/authors

NOVELS holds AUTHOR_TITLE_YEAR.txt. Of six authors two novels are for training
and a third one for dev, so that no name of a person tells the author.
"""

import argparse
import pathlib

import pyarrow as pa
from pyarrow import parquet

AUTHORS = ('Chesterton', 'Dickens', 'Doyle', 'Hardy', 'James', 'Woolf')
WORDS = 180  # of a passage, about four times as many tokens as a row of 64 has
PASSAGES = {'train': 20, 'dev': 20}  # of a novel, evenly spaced


def passages(path: pathlib.Path, count: int) -> list[str]:
  """Returns passages of a novel, from one word in `count` parts to the next."""
  words = path.read_text().split()
  step = len(words) // count
  return [' '.join(words[i * step :][:WORDS]) for i in range(count)]


def write(novels: str, out: str) -> None:
  """Writes train.parquet and dev.parquet."""
  rows = {'train': [], 'dev': []}
  for author in AUTHORS:
    *train, dev = sorted(pathlib.Path(novels).glob(f'{author}_*.txt'))
    for split, paths in (('train', train), ('dev', [dev])):
      for path in paths:
        rows[split] += [
          {'text': text, 'author': author}
          for text in passages(path, PASSAGES[split])
        ]
  folder = pathlib.Path(out)
  folder.mkdir(parents=True, exist_ok=True)
  for split, found in rows.items():
    parquet.write_table(
      pa.Table.from_pylist(found), folder / f'{split}.parquet'
    )
    print(f'{split}: {len(found)} passages')


if __name__ == '__main__':
  parser = argparse.ArgumentParser(
    prog='python tests/bench/long_texts.py',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument('novels', help='folder of AUTHOR_TITLE_YEAR.txt')
  parser.add_argument('out', help='folder of the set')
  write(**vars(parser.parse_args()))
