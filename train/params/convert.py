"""Describes weights, and writes published ones and averages as workdirs."""

import contextlib
import json
import uuid
from collections.abc import Iterator, Sequence

import jax
import ml_collections
import numpy as np
from etils import epath

from data import scratch, storage
from models import layers
from models.layers import Params
from models.pretrained import strict
from models.pretrained.weights import Weights
from train.architectures import families
from train.host.files import Json
from train.params import opened, warm_start
from train.run import checkpoint, settings, workdirs


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
    config = _config_of(found, str(weights), str(tokenizer or weights))
    facts = {'weights': str(weights), 'kind': found.kind}
    _write(new, found, config, found.load(), facts)


def average(
  weights: Sequence[epath.PathLike],
  workdir: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
  last: int | None = None,
) -> list[str]:
  """Writes the mean of models into a new workdir; returns their names.

  The mean of a run's checkpoints can be better than the newest, as long as the
  rate has not fallen (Izmailov et al. 2018, "Averaging Weights Leads to Wider
  Optima"). With `last`, each of `weights` is a workdir, whose newest `last`
  checkpoints are meant. The workdir is like that of `import_`. Raises
  ValueError for one model alone, a fine-tuning, or models of different forms.
  """
  checkpoint.checkpoint_folder(workdir)
  with new_folder(workdir) as new:
    names = [str(name) for name in weights]
    if last is not None:
      names = [name for run in names for name in _newest(run, last)]
    if len(names) < 2:
      raise ValueError(
        f'{names[0]} is one model: name two or more, such as WORKDIR@STEP of'
        ' several steps, or pass --last'
      )
    models = [opened.open_weights(name, tokenizer) for name in names]
    first = models[0]
    for name, found in zip(names, models, strict=True):
      found.check_complete()
      _check_alike(names[0], first, name, found)
    if first.kind != 'workdir':
      config = _config_of(first, names[0], str(tokenizer or names[0]))
    else:
      config = workdirs.read_config(first.folder)
      if 'task' in config:
        raise ValueError(
          f'{first.folder} is a fine-tuning: name pre-trainings or published'
          ' weights'
        )
    sums = None
    for found in models:
      loaded = jax.tree.map(lambda x: np.asarray(x, np.float64), found.load())
      sums = loaded if sums is None else jax.tree.map(np.add, sums, loaded)
    mean = jax.tree.map(lambda x: np.float32(x / len(models)), sums)
    facts = {'weights': names, 'kind': 'average'}
    _write(new, first, config, mean, facts)
  return names


def _newest(workdir: epath.PathLike, last: int) -> list[str]:
  """Returns WORKDIR@STEP of the newest kept checkpoints."""
  steps = checkpoint.complete_steps(checkpoint.checkpoint_folder(workdir))
  if len(steps) < last:
    raise ValueError(
      f'{workdir} keeps {len(steps)} checkpoints, expected {last} or more'
      f' (--last {last}): train with a larger train.keep_checkpoints'
    )
  return [f'{workdir}@{step}' for step in steps[-last:]]


def _check_alike(
  name: str, first: Weights, other_name: str, other: Weights
) -> None:
  """Checks that models can be averaged."""
  for what, found in (
    ('model', lambda w: w.name),
    ('fields', lambda w: warm_start.module_settings(w.name, w.model)),
    ('fields', lambda w: opened.fields_beside(w.model)),
    ('vocabulary', lambda w: w.tokenizer and w.tokenizer.fingerprint),
    ('arrays', lambda w: {path: x.shape for path, x in w.shapes.items()}),
  ):
    ours, theirs = found(first), found(other)
    if ours == theirs:
      continue
    if isinstance(ours, dict):
      what = min(k for k in ours | theirs if ours.get(k) != theirs.get(k))
      ours, theirs = ours.get(what), theirs.get(what)
    raise ValueError(
      f'{other_name} differs from {name} in its {what}: {theirs}, expected'
      f' {ours}'
    )


def _write(
  new: epath.Path,
  found: Weights,
  config: ml_collections.ConfigDict,
  params: Params,
  facts: dict[str, Json],
) -> None:
  """Writes a workdir that holds parameters, as a checkpoint of step 0."""
  imported = facts | {
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
  (new / opened.IMPORTED_FILE).write_text(json.dumps(imported, indent=2) + '\n')


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
