"""Describes weights, and writes published ones as workdirs."""

import contextlib
import json
import uuid
from collections.abc import Iterator

import ml_collections
from etils import epath

from data import scratch, storage
from models import layers
from models.pretrained import strict
from models.pretrained.weights import Weights
from train.architectures import families
from train.host.files import Json
from train.params import opened, warm_start
from train.run import checkpoint, settings


def inspect(
  weights: epath.PathLike, tokenizer: epath.PathLike | None = None
) -> dict[str, Json]:
  """Describes weights without reading an array, see `opened.open_weights`.

  The report has `sizes` (keys of `config.model`), `parameters` (their number,
  as published), `set_aside` (unused arrays), `notes` (facts that the files
  leave open), `overrides` (arguments of `train.main` that fit the weights) and
  `problems` (why the weights cannot be used).
  """
  found = opened.open_weights(weights, tokenizer)
  model = found.model
  report: dict[str, Json] = {
    'folder': str(found.folder),
    'kind': found.kind,
    'architecture': found.name,
    'tokenizer': found.tokenizer and found.tokenizer.description,
    'heads': [*getattr(model, 'heads', ()), *found.heads],
    'set_aside': list(found.set_aside),
    'notes': dict(found.notes),
    'problems': list(found.problems),
  }
  if model is None:
    return report
  sizes = warm_start.module_settings(found.name, model)
  shapes: dict = {}
  for path, leaf in found.shapes.items():
    strict.put(shapes, path.split('/'), leaf)
  num_rows = model.vocab_size or getattr(model, 'num_words', 0)
  return report | {
    'sizes': sizes,
    'parameters': layers.num_parameters(shapes, num_rows),
    'vocabulary_size': model.vocab_size,
    'gelu': getattr(model, 'gelu', None),
    'overrides': warm_start.overrides(found.name, model),
  }


def import_(
  weights: epath.PathLike,
  workdir: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
) -> None:
  """Writes published weights into a new workdir, as a checkpoint of step 0.

  A run can begin with it by `init.weights`, but not continue there. Raises
  ValueError for a workdir, or for weights without the vocabulary they need.
  """
  checkpoint.checkpoint_folder(workdir)  # refuses what orbax cannot read again
  with new_folder(workdir) as new:
    found = opened.open_weights(weights, tokenizer)
    if found.kind == 'workdir':
      raise ValueError(
        f'{found.folder} is a workdir already: give published weights, or copy'
        ' it'
      )
    found.check_complete()
    params = found.load()
    config = _config_of(found, str(weights), str(tokenizer or weights))
    imported = {
      'weights': str(weights),
      'kind': found.kind,
      'tokenizer': found.tokenizer and found.tokenizer.fingerprint,
      'fields': opened.fields_beside(found.model),
      'labels': dict(found.labels),
      'notes': dict(found.notes),
      'sentence_form': found.sentence_form and found.sentence_form._asdict(),
    }
    (new / 'config.json').write_text(settings.as_json(config) + '\n')
    if found.tokenizer is not None:
      found.tokenizer.save(new)
    with checkpoint.Checkpoints(new, keep=1) as checkpoints:
      checkpoints.save(0, {'params': params})
    (new / opened.IMPORTED_FILE).write_text(
      json.dumps(imported, indent=2) + '\n'
    )


def _config_of(
  found: Weights, weights: str, tokenizer: str
) -> ml_collections.ConfigDict:
  """Returns a config with the model's sizes that begins with the weights."""
  config = families.ARCHITECTURES[found.name].default_config()
  if hasattr(found.model, 'max_length'):
    length = min(config.train.phases[0][1], found.model.max_length)
    config.train.phases = ((1_000, length, 32, 'continue'),)
  config.model.name = found.name
  with config.ignore_type():  # no clip is None
    config.model.update(warm_start.module_settings(found.name, found.model))
  config.data.tokenizer = tokenizer
  config.init.weights = weights
  return config.lock()


def check_new_folder(folder: epath.PathLike) -> None:
  """Raises FileExistsError if a folder is there, unless it is empty."""
  storage.check_buckets((), [folder])
  folder = epath.Path(folder)
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise FileExistsError(f'{folder} exists already: name a new folder')


@contextlib.contextmanager
def new_folder(folder: epath.PathLike) -> Iterator[epath.Path]:
  """Yields a temporary folder; renames it to `folder` if no error occurs."""
  check_new_folder(folder)
  folder = epath.Path(folder)
  if storage.is_remote(folder):
    new = folder.with_name(f'.{folder.name}.{uuid.uuid4().hex}.new')
    try:
      new.mkdir(parents=True)
      yield new
      new.rename(folder)
    except BaseException:
      new.rmtree(missing_ok=True)
      raise
    return
  folder = folder.resolve()  # of '.' too
  folder.parent.mkdir(parents=True, exist_ok=True)
  with scratch.beside(folder) as hidden:
    new = epath.Path(hidden / folder.name)
    new.mkdir()
    yield new
    if folder.exists():
      folder.rmdir()  # empty
    new.rename(folder)
