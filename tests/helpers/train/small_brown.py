"""A small corpus in the place of Brown, and small parts of it."""

import pathlib
import random

import pytest

from train.papers import brown_text

PARTS = {'TRAIN': 1_200, 'VALID': 400, 'LINE': 100}


def write(folder: pathlib.Path) -> list[str]:
  """Writes FOLDER/brown/brown.txt of 2,000 words; returns them."""
  drawn = random.Random(0)
  words = [f'w{min(int(drawn.expovariate(0.1)), 60)}' for _ in range(1_990)]
  words += ['<UNK>', *'once twice twice'.split(), *['known'] * 4, '<S>', 'Of']
  drawn.shuffle(words)
  (folder / 'brown').mkdir()
  (folder / 'brown/brown.txt').write_text(
    '\n\n'.join(' '.join(words[i : i + 100]) for i in range(0, len(words), 100))
  )
  return words


def cut(patch: pytest.MonkeyPatch) -> None:
  """Makes the parts so small that the corpus has words to test."""
  for name, size in PARTS.items():
    patch.setattr(brown_text, name, size)
