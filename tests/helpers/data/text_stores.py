"""Small documents and the stores that are built of them."""

import os
import pathlib
import random

from data.store import build

TOKENIZER = 'train:wordpiece:200'


def make_documents(count, seed=0, num_sentences=(2, 9)):
  """Documents as lists of sentences that the recogniser takes for such."""
  rng = random.Random(seed)
  words = [
    ''.join(rng.choices('abcdefghijklmnop', k=rng.randint(2, 8)))
    for _ in range(300)
  ]

  def sentence():
    chosen = rng.choices(words, k=rng.randint(3, 12))
    return ' '.join(chosen).capitalize() + '.'

  return [
    [sentence() for _ in range(rng.randint(*num_sentences))]
    for _ in range(count)
  ]


def write_documents(path, documents):
  text = '\n\n'.join('\n'.join(document) for document in documents) + '\n'
  path.write_text(text)
  return os.fspath(path)


def build_quietly(source, tokenizer, out, **options):
  return build.build_store(
    os.fspath(source), os.fspath(tokenizer), out, progress=False, **options
  )


def contents(folder):
  return {
    path.name: path.read_bytes()
    for path in pathlib.Path(folder).iterdir()
    if path.name != '.verified.json'
  }


def leftovers(folder):
  return [path.name for path in folder.iterdir() if path.name.startswith('.')]
