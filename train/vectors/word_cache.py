"""Contextual vectors of a task's words, computed once and kept on disk.

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
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from data import storage
from data.store import folders
from models.pretrained.weights import Weights
from train.architectures import families
from train.engine import state
from train.host import console
from train.params import opened, trained
from train.vectors import elmo_vectors, text_vectors, vector_files
from train.vectors.request import Choice, Request

LAYERS_FILE, META_FILE = 'layers.bin', 'meta.json'
DTYPE = np.dtype('<f2')
VERSION = 1  # of the vectors; another one makes all caches anew
REQUEST = Request('word', choice=Choice('all'), split=list)


@dataclasses.dataclass(frozen=True)
class Source:
  """Weights that give vectors of words.

  Attributes:
    weights: the model, float32, and its parameters, in the host's memory.
    digest: SHA-256 of all that the vectors depend on: the parameters, the
      model's settings, the tokenizer.
    unit: of the text; each has a vector.
  """

  weights: Weights = dataclasses.field(repr=False)
  digest: str
  unit: ClassVar[str] = 'word'

  @property
  def num_layers(self) -> int:
    """L, with the layer of the embeddings."""
    return self.weights.model.num_layers + 1

  @property
  def dim(self) -> int:
    """D, the width of a layer."""
    model = self.weights.model
    return 2 * model.projection_dim if self.reads_words else model.embed_dim

  @property
  def reads_words(self) -> bool:
    """Whether the model reads whole words by their characters, as an ELMo."""
    return families.ARCHITECTURES[self.weights.name].reads_words

  def count_rows(self, sentences: Sequence[Sequence[str]]) -> list[int]:
    """Returns how many vectors each sentence has: one a word."""
    return [len(words) for words in sentences]

  def compute(
    self, sentences: Sequence[Sequence[str]]
  ) -> Iterator[tuple[int, vector_files.VectorFile]]:
    """Yields (number of a sentence, its vectors [L, rows, D]), in any order."""
    weights = self.weights
    if self.reads_words:
      model, params = weights.model, weights.params
      return elmo_vectors.embed_numbered(model, params, sentences)
    return text_vectors.embed_numbered(weights, sentences, REQUEST)


class CachedVectors(NamedTuple):
  """Vectors of the words of sentences.

  Attributes:
    layers: float16 [W, L, D], in a file; the words of each distinct sentence
      one after the other, or their pieces, see `Source.count_rows`.
    starts: int64 [N], the row of each given sentence's first word; equal
      sentences share their rows.
  """

  layers: np.memmap
  starts: np.ndarray


def open_source(
  weights: epath.PathLike, tokenizer: epath.PathLike | None = None
) -> Source:
  """Opens weights of any family that `train.embed` reads.

  For the arguments and errors see `opened.open_weights` and `trained.load`. The
  parameters are read to make the digest, and leave the device again. All
  processes of a run call it: they read the checkpoint of a workdir together.
  """
  found = opened.open_weights(weights, tokenizer)
  found.check_complete()
  fingerprint = None
  if families.ARCHITECTURES[found.name].reads_words:
    model, params, _ = trained.load_elmo(found)
    found = found._replace(model=model, params=params)
  else:
    found = trained.load(found, expected=trained.TRANSFORMERS)
    fingerprint = found.tokenizer.fingerprint
  found = found._replace(
    model=found.model.clone(dtype=jnp.float32),
    params=jax.tree.map(np.array, found.params),
  )
  facts = {
    'version': VERSION,
    'family': found.name,
    'settings': _settings(found.model),
    'params': state.digest(found.params),
    'tokenizer': fingerprint,
  }
  return Source(found, _sha256(facts))


def _settings(model: Any) -> dict[str, Any]:
  """Returns the fields of a module that JSON can hold."""
  fields = {
    field.name: getattr(model, field.name)
    for field in dataclasses.fields(model)
    if field.name not in ('parent', 'name')
  }
  plain = int | float | str | tuple | None
  return {key: fields[key] for key in fields if isinstance(fields[key], plain)}


def _sha256(facts: Any) -> str:
  return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def vectors(
  source: Source,
  sentences: Sequence[Sequence[str]],
  folder: epath.PathLike | None = None,
) -> CachedVectors:
  """Returns all layers of sentences' words, as `train.embed` computes them.

  Sentences are lists of words. A model of tokens gives a word the vector of its
  first piece (BERT), or of its last, if it reads from left to right; a word
  without pieces has zeros. Sentences beyond the model's positions are read in
  windows, see `token_windows`; nothing is cut but words beyond 48 bytes by an
  ELMo, as released.

  The vectors are kept in `folder`, a local one, by default
  ~/.cache/sesame/word_vectors, under a name made of the source's digest and the
  sentences'. If they are there, nothing is computed. A process computes on its
  own first device; where several share the folder, one computes and the others
  wait. Raises ValueError for a remote folder, no words, and vectors that are
  not finite in float16; OSError if the disk is full.
  """
  if folder is not None and storage.is_remote(folder):
    raise ValueError(f'{folder}: word vectors need a local folder')
  folder = pathlib.Path(folder or folders.default_cache('word_vectors'))
  given = [tuple(sentence) for sentence in sentences]
  distinct = list(dict.fromkeys(given))
  *firsts, num_words = itertools.accumulate(
    source.count_rows(distinct), initial=0
  )
  first_rows = dict(zip(distinct, firsts, strict=True))
  if not num_words:
    raise ValueError(f'{len(given):,} sentences without a word, expected words')
  meta = {
    'source': source.digest,
    'sentences': _sha256(list(first_rows)),
    'shape': [num_words, source.num_layers, source.dim],
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
        _make(source, first_rows, target, meta)
  else:
    console.say(f'vectors of {num_words:,} {source.unit}s: read from {target}')
  shape = tuple(meta['shape'])
  layers = np.memmap(target / LAYERS_FILE, DTYPE, 'r', shape=shape)
  return CachedVectors(layers, np.array([first_rows[words] for words in given]))


def _misfit(target: pathlib.Path, meta: dict[str, Any]) -> str:
  """Returns why a folder does not hold the vectors of `meta`; '' if it does."""
  try:
    found = json.loads((target / META_FILE).read_bytes())
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


def _num_bytes(meta: dict[str, Any]) -> int:
  return math.prod(meta['shape']) * DTYPE.itemsize


def _make(
  source: Source,
  first_rows: dict[tuple[str, ...], int],
  target: pathlib.Path,
  meta: dict[str, Any],
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
      for number, found in source.compute(sentences):
        words = sentences[number]
        file.seek(first_rows[words] * (size // num_words))
        file.write(_as_stored(source, words, found.array))
        done += found.array.shape[1]
        now = time.monotonic()
        if now - shown > console.BAR_SECONDS or done == num_words:
          shown = now
          rate = f'{done / (now - began):,.0f} {source.unit}s/s'
          bar.update(done, rate)
      file.flush()
      os.fsync(file.fileno())  # a crash may leave the renamed folder only
    about = {**meta, 'weights': str(source.weights.folder)}
    (partial / META_FILE).write_text(json.dumps(about, indent=2) + '\n')
    folders.seal(partial)
  seconds = time.monotonic() - began
  console.say(
    f'vectors of {num_words:,} {source.unit}s: {seconds:,.1f} s, {size:,} bytes'
    f' in {target}'
  )


def _as_stored(
  source: Source, words: Sequence[str], layers_LWD: np.ndarray
) -> bytes:
  """Returns the bytes of a sentence's vectors, float16 [words, L, D]."""
  with np.errstate(over='ignore'):  # infinity is told below
    stored_WLD = layers_LWD.swapaxes(0, 1).astype(DTYPE)
  if not np.isfinite(stored_WLD).all():
    raise ValueError(
      f'{source.weights.folder}: the vectors of {" ".join(words)[:60]!r} reach'
      f' {np.abs(layers_LWD).max():g}, expected at most'
      f' {np.finfo(DTYPE).max:g}, the largest float16'
    )
  return stored_WLD.tobytes()
