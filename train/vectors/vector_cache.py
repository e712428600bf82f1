"""Contextual vectors of words or pieces, computed once and kept on disk.

Shapes: N given sentence, W word of all distinct sentences, L layer with the
embeddings, D = 2 P of an ELMo.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from etils import epath
from flax import linen as nn

from data import storage
from data.store import folders
from data.text import text_files
from models.pretrained.weights import Weights
from train.engine import state
from train.host import console
from train.host.files import Json
from train.vectors import vector_files
from train.vectors.trained_model import TrainedModel

LAYERS_FILE, META_FILE = 'layers.bin', 'meta.json'
DTYPE = np.dtype('<f2')
VERSION = 1  # of the vectors; another one makes all caches anew
PIECES = 'pieces, layer 0 without positions'  # in the names of the files


class CachedVectors(NamedTuple):
  """Vectors of the words of sentences.

  Attributes:
    layers: float16 [W, L, D], in a file; the words of each distinct sentence
      one after the other, or their pieces.
    starts: int64 [N], the row of each given sentence's first word; equal
      sentences share their rows.
  """

  layers: np.memmap
  starts: np.ndarray


class VectorCache:
  """A trained model, and the vectors of texts that it has computed, on disk.

  Attributes:
    model: computes in float32; its parameters are in the host's memory.
    unit: 'word' or 'piece'; each has a vector. To an ELMo words are the pieces.
    digest: SHA-256 of all that the vectors depend on: the parameters, the
      model's settings, the tokenizer, the unit.
  """

  def __init__(
    self,
    weights: epath.PathLike | Weights,
    tokenizer: epath.PathLike | None = None,
    *,
    unit: str = 'word',
  ):
    """Opens weights of any family that `train.embed` reads.

    For the arguments and errors see `TrainedModel`. The digest needs the
    parameters, which leave the device again. All processes of a run call it,
    since they read the checkpoint of a workdir together.
    """
    model = TrainedModel(weights, tokenizer, dtype='float32')
    model.to_host()
    self.model = model
    self.unit = 'word' if model.reads_words else unit
    self.digest = digest_of(model)
    if self.unit == 'piece':
      named = f'{PIECES} of {self.digest}'
      self.digest = hashlib.sha256(named.encode()).hexdigest()

  def count_rows(self, sentences: Sequence[Sequence[str]]) -> list[int]:
    """Returns how many vectors each sentence has: one a word, or a piece."""
    if self.unit == 'word':
      return [len(words) for words in sentences]
    return [sum(counts) for counts in self.model.count_pieces(sentences)]

  def compute(
    self, sentences: Sequence[Sequence[str]]
  ) -> Iterator[tuple[int, vector_files.VectorFile]]:
    """Yields (number of a sentence, its vectors [L, rows, D]), in any order."""
    if self.unit == 'word':
      return self.model.words(sentences)
    return self.model.pieces(sentences)

  def vectors(
    self,
    sentences: Sequence[Sequence[str]],
    folder: epath.PathLike | None = None,
  ) -> CachedVectors:
    """Returns all layers of sentences' words, as `train.embed` computes them.

    Sentences are lists of words. A model of tokens gives a word the vector of
    its first piece (BERT), or of its last, if it reads from left to right; a
    word without pieces has zeros. Sentences beyond the model's positions are
    read in windows, see `token_windows`; nothing is cut but words beyond 48
    bytes by an ELMo, as released.

    The vectors are kept in `folder`, a local one, by default
    ~/.cache/sesame/word_vectors, under a name made of `digest` and the
    sentences' own. If they are there, nothing is computed. A process computes
    on its own first device; where several share the folder, one computes and
    the others wait. Raises ValueError for a remote folder, no words, and
    vectors that are not finite in float16; OSError if the disk is full.
    """
    if folder is not None and storage.is_remote(folder):
      raise ValueError(f'{folder}: word vectors need a local folder')
    folder = pathlib.Path(folder or folders.default_cache('word_vectors'))
    given = [tuple(sentence) for sentence in sentences]
    distinct = list(dict.fromkeys(given))
    *firsts, num_words = itertools.accumulate(
      self.count_rows(distinct), initial=0
    )
    first_rows = dict(zip(distinct, firsts, strict=True))
    if not num_words:
      raise ValueError(
        f'{len(given):,} sentences without a word, expected words'
      )
    meta = {
      'source': self.digest,
      'sentences': _sha256(list(first_rows)),
      'shape': [num_words, self.model.num_layers, self.model.dim],
      'dtype': DTYPE.name,
    }
    name = f'{meta["source"][:16]}-{meta["sentences"][:16]}'
    target = folder.expanduser() / name
    if _misfit(target, meta):
      folders.remove_leftovers(target.parent)
      with folders.exclusive(target):
        problem = _misfit(target, meta)  # none if another process made it
        if problem:
          if target.exists():
            console.say(f'{target}: {problem}; its vectors are computed anew')
          _make(self, first_rows, target, meta)
    else:
      console.say(f'vectors of {num_words:,} {self.unit}s: read from {target}')
    shape = tuple(meta['shape'])
    layers = np.memmap(target / LAYERS_FILE, DTYPE, 'r', shape=shape)
    return CachedVectors(
      layers, np.array([first_rows[words] for words in given])
    )


def digest_of(model: TrainedModel) -> str:
  """Returns a SHA-256 of all that a model's vectors of texts depend on.

  The parameters, the module's settings and the tokenizer.
  """
  return _sha256(
    {
      'version': VERSION,
      'family': model.name,
      'settings': _settings(model.model),
      'params': state.digest(model.params),
      'tokenizer': (None if model.reads_words else model.tokenizer.fingerprint),
    }
  )


def _settings(
  model: nn.Module,
) -> dict[str, int | float | str | tuple | None]:
  """Returns the fields of a module that JSON can hold."""
  fields = {
    field.name: getattr(model, field.name)
    for field in dataclasses.fields(model)
    if field.name not in ('parent', 'name')
  }
  plain = int | float | str | tuple | None
  return {key: fields[key] for key in fields if isinstance(fields[key], plain)}


def _sha256(facts: Json) -> str:
  return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _misfit(target: pathlib.Path, meta: Mapping[str, Json]) -> str:
  """Returns why a folder does not hold the vectors of `meta`; '' if it does."""
  try:
    found = text_files.read_json(target / META_FILE)
    size = (target / LAYERS_FILE).stat().st_size
  except (OSError, ValueError) as error:
    return f'cannot be read ({error})'
  for key, value in meta.items():
    there = found.get(key) if isinstance(found, dict) else None
    if there != value:
      return f'{key} is {there}, expected {value}'
  if size != (expected := _num_bytes(meta)):
    return f'{LAYERS_FILE} has {size:,} bytes, expected {expected:,}'
  return folders.find_damage(target)


def _num_bytes(meta: Mapping[str, Json]) -> int:
  return math.prod(meta['shape']) * DTYPE.itemsize


def _make(
  cache: VectorCache,
  first_rows: dict[tuple[str, ...], int],
  target: pathlib.Path,
  meta: Mapping[str, Json],
) -> None:
  """Computes and writes the vectors of distinct sentences; all or nothing."""
  num_words, size = meta['shape'][0], _num_bytes(meta)
  sentences = list(first_rows)
  began = shown = time.monotonic()
  done = 0
  cure = 'name another folder'
  storage.check_space(target.parent, size, 'the vectors of words', cure)
  with folders.new_folder(target) as partial:
    with (
      open(partial / LAYERS_FILE, 'wb') as file,
      console.ProgressBar(0, num_words) as bar,
    ):
      for number, found in cache.compute(sentences):
        words = sentences[number]
        file.seek(first_rows[words] * (size // num_words))
        file.write(_as_stored(cache, words, found.array))
        done += found.array.shape[1]
        now = time.monotonic()
        if now - shown > console.BAR_SECONDS or done == num_words:
          shown = now
          rate = f'{done / (now - began):,.0f} {cache.unit}s/s'
          bar.update(done, rate)
      file.flush()
      os.fsync(file.fileno())  # a crash may leave the renamed folder only
    about = {**meta, 'weights': str(cache.model.folder)}
    (partial / META_FILE).write_text(json.dumps(about, indent=2) + '\n')
    folders.seal(partial)
  seconds = time.monotonic() - began
  console.say(
    f'vectors of {num_words:,} {cache.unit}s: {seconds:,.1f} s, {size:,} bytes'
    f' in {target}'
  )


def _as_stored(
  cache: VectorCache, words: Sequence[str], layers_LWD: np.ndarray
) -> bytes:
  """Returns the bytes of a sentence's vectors, float16 [words, L, D]."""
  with np.errstate(over='ignore'):  # infinity is told below
    stored_WLD = layers_LWD.swapaxes(0, 1).astype(DTYPE)
  if not np.isfinite(stored_WLD).all():
    raise ValueError(
      f'{cache.model.folder}: the vectors of {" ".join(words)[:60]!r} reach'
      f' {np.abs(layers_LWD).max():g}, expected at most'
      f' {np.finfo(DTYPE).max:g}, the largest float16'
    )
  return stored_WLD.tobytes()
