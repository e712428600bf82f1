"""Small files of dialogues."""

import random

WORDS = 'blue red warm cold north south tea milk moon river stone glass'.split()


def make_dialogues(count, seed=0, roles='QRQRR'):
  """Dialogues as lists of (role, text) of random words."""
  rng = random.Random(seed)
  return [
    [
      (role, ' '.join(rng.choices(WORDS, k=rng.randint(1, 6))))
      for role in roles[: rng.randint(2, len(roles))]
    ]
    for _ in range(count)
  ]


def write_dialogues(path, dialogues):
  path.write_text(
    '\n'.join(
      ''.join(f'{role}\t{text}\n' for role, text in turns)
      for turns in dialogues
    )
  )
  return path
