"""Scores of KenLM's query on our ARPA files, which a test reads.

pip install kenlm==0.3.0    # builds C++ with cmake
python tests/bench/ngrams/kenlm_scores.py > tests/data/ngrams/kenlm_scores.json
"""

import json
import pathlib
import random
import tempfile

import kenlm

from data.ngrams import arpa, counts, smoothing, texts

ORDER = 3


def draw_lines(rng, count):
  """Returns lines of words of which few are frequent."""
  return [
    ' '.join(
      f'w{min(int(rng.expovariate(0.25)), 40)}'
      for _ in range(rng.randint(1, 10))
    )
    for _ in range(count)
  ]


def main() -> None:
  """Prints the text, the lines scored, and each method's scores."""
  rng = random.Random(0)
  text, test = draw_lines(rng, 120), [*draw_lines(rng, 12), 'w1 new w2 w3 w2']
  found = {}
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    path = folder / 'text'
    path.write_text('\n'.join(text))
    words = texts.read_words([path]).words
    blocks = texts.file_blocks(
      [path], {word: i for i, word in enumerate(words)}
    )
    (folder / 'counts').mkdir()
    counted = counts.count(blocks, ORDER, len(words), folder / 'counts')
    for name, method in smoothing.METHODS.items():
      file = folder / f'{name}.arpa'
      with file.open('w') as stream:
        arpa.write(method(counted, words, ORDER), stream)
      theirs = kenlm.Model(str(file))
      found[name] = [
        [round(score, 6) for score, *_ in theirs.full_scores(line)]
        for line in test
      ]
  print(json.dumps({'text': text, 'test': test, 'scores': found}))


if __name__ == '__main__':
  main()
