"""Small texts of drawn words, and their n-grams."""

import random

from data.ngrams import counts, texts


def draw_lines(count, seed=0, words=30):
  """Returns lines of words of which few are frequent."""
  rng = random.Random(seed)
  return [
    ' '.join(
      f'w{min(int(rng.paretovariate(0.8)), words)}'
      for _ in range(rng.randint(1, 9))
    )
    for _ in range(count)
  ]


def count_lines(folder, lines, order, min_count=1, **options):
  """Returns the counts of a text's n-grams, and its words."""
  path = folder / 'lines.txt'
  path.write_text('\n'.join(lines) + '\n')
  words = texts.read_words([path], min_count).words
  ids = {word: i for i, word in enumerate(words)}
  place = folder / f'counts{len(list(folder.iterdir()))}'
  place.mkdir()
  blocks = texts.file_blocks([path], ids)
  return counts.count(blocks, order, len(words), place, **options), words
