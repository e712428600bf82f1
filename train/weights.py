"""Looks at weights, and turns workdirs into published formats and back.

  python -m train.weights inspect WEIGHTS [--json]
  python -m train.weights export WEIGHTS FOLDER
  python -m train.weights import WEIGHTS WORKDIR

WEIGHTS is a workdir, a folder of published weights, or a name on Hugging
Face's hub; `--tokenizer PATH` names their vocabulary where it does not lie
beside them, and rows of the token table that are of no piece are left out.
`inspect` reads no array. `export` writes what transformers and its
AutoTokenizer load, without a vocabulary the weights alone; of an ELMo what the
released program reads. `import` writes a workdir, to be used wherever one is.
"""

import argparse
import contextlib
import json
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import ml_collections
from absl import logging
from etils import epath

from configs import base
from data import tokenizer_export
from models.pretrained import elmo as pretrained_elmo
from models.pretrained import gpt as pretrained_gpt
from models.pretrained import hugging_face, strict
from train import (
  assemble,
  checkpoint,
  command,
  initial,
  metrics,
  opened,
  reporting,
  settings,
  trained,
  vocabulary_fit,
)
from train.opened import Opened

HELP = (
  'a workdir, a folder of published weights, or a name on the hub of Hugging'
  ' Face such as google-bert/bert-base-uncased'
)
# Key of Hugging Face's config -> our name of the id.
SYMBOLS = {
  'pad_token_id': 'pad_id',
  'bos_token_id': 'end_of_text_id',
  'eos_token_id': 'end_of_text_id',
}


def inspect(
  weights: epath.PathLike, tokenizer: epath.PathLike | None = None
) -> dict[str, Any]:
  """Returns what weights are, for people and as JSON; no array is read.

  Args:
    weights: see `opened.open_weights`.
    tokenizer: likewise.

  Returns:
    folder, kind, architecture; sizes: the settings of `config.model`;
    parameters: how many, as published; vocabulary_size; tokenizer: in words,
    None where none is there; gelu; heads; set_aside: names that are not used;
    notes: what the files do not tell; overrides: arguments of `train.main` with
    which these weights fit; problems: why they cannot be used.
  """
  found = opened.open_weights(weights, tokenizer)
  report: dict[str, Any] = {
    'folder': str(found.folder),
    'kind': found.kind,
    'architecture': found.name,
    'tokenizer': found.tokenizer and found.tokenizer.description,
    'heads': [*getattr(found.model, 'heads', ()), *found.heads],
    'set_aside': list(found.set_aside),
    'notes': dict(found.notes),
    'problems': list(found.problems),
  }
  if found.model is None:
    return report
  sizes = initial.module_settings(found.name, found.model)
  shapes: dict = {}
  for path, leaf in found.shapes.items():
    strict.put(shapes, path.split('/'), leaf)
  count = assemble.ARCHITECTURES[found.name].num_parameters
  return report | {
    'sizes': sizes,
    'parameters': count(
      shapes, found.model.vocab_size or getattr(found.model, 'num_words', 0)
    ),
    'vocabulary_size': found.model.vocab_size,
    'gelu': getattr(found.model, 'gelu', None),
    'overrides': [
      initial.override(f'model.{key}', value) for key, value in sizes.items()
    ],
  }


def export(
  weights: epath.PathLike,
  folder: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
) -> None:
  """Writes weights as others read them.

  Args:
    weights: see `opened.open_weights`.
    folder: a new one; config.json, model.safetensors and the files of the
      tokenizer, if there is one, or options.json, lm_weights.hdf5 and words.txt
      of an ELMo.
    tokenizer: see `opened.open_weights`.

  Raises:
    FileExistsError: if the folder holds anything.
    FileNotFoundError: if there are no such weights.
    ValueError: if they cannot be used.
  """
  _check_new(folder)
  found = opened.open_weights(weights, tokenizer)
  parts = {path.partition('/')[0] for path in found.shapes}
  added = sorted(parts.intersection(opened.HEADS + opened.BETWEEN))
  if found.name == 'elmo' and added:
    raise ValueError(
      f'{found.folder}: found {", ".join(added)} on an ELMo, which its released'
      ' format has no place for; export the weights that the run began with'
    )
  params = found.load(found.on_one_device())
  with _new_folder(folder) as new:
    if found.name == 'elmo':
      pretrained_elmo.write_folder(new, found.model, params)
      if found.tokenizer is not None:
        found.tokenizer.save(new)
      return
    extra: dict[str, Any] = {
      key: getattr(found.tokenizer, name)
      for key, name in SYMBOLS.items()
      if hasattr(found.tokenizer, name)
    }
    if found.labels:
      extra['id2label'] = dict(found.labels)
      extra['label2id'] = {
        name: int(number) for number, name in found.labels.items()
      }
    if pretrained_gpt.NO_SOFTMAX in found.notes:
      extra |= pretrained_gpt.HEADLESS[found.name]
    hugging_face.write_folder(new, found.model, params, extra)
    if found.tokenizer is None:
      reporting.say(
        f'{found.folder} holds no vocabulary: the weights are written alone.'
      )
      return
    tokenizer_export.export(
      found.tokenizer, new, max_length=found.model.max_length
    )


def import_(
  weights: epath.PathLike,
  workdir: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
) -> None:
  """Writes published weights as a workdir whose checkpoint is of step 0.

  Args:
    weights: see `opened.open_weights`.
    workdir: a new folder, local or remote; no run continues there, but one can
      begin with it by `init.weights`.
    tokenizer: see `opened.open_weights`.

  Raises:
    FileExistsError: if the folder holds anything.
    FileNotFoundError: if there are no such weights.
    ValueError: if they cannot be used, or are a workdir already, or have no
      vocabulary, which a workdir needs.
  """
  _check_new(workdir)
  found = opened.open_weights(weights, tokenizer)
  if found.kind == 'workdir':
    raise ValueError(
      f'{found.folder} is a workdir already: give published weights, or copy it'
    )
  found.check()
  params = found.load(found.on_one_device())
  config = _config_of(found, str(weights), str(tokenizer or weights))
  with _new_folder(workdir) as new:
    (new / 'config.json').write_text(settings.as_json(config) + '\n')
    if found.tokenizer is not None:
      found.tokenizer.save(new)
    with checkpoint.Checkpoints(new, keep=1) as checkpoints:
      checkpoints.save(0, {'params': params})
    imported = {
      'weights': str(weights),
      'kind': found.kind,
      'tokenizer': found.tokenizer is not None,
      'fields': opened.fields_beside(found.model),
      'labels': dict(found.labels),
      'notes': dict(found.notes),
    }
    (new / opened.IMPORTED_FILE).write_text(
      json.dumps(imported, indent=2) + '\n'
    )


def _config_of(
  found: Opened, weights: str, tokenizer: str
) -> ml_collections.ConfigDict:
  """Returns a config of the model's sizes that begins with the weights."""
  if found.name == 'elmo':
    config = base.get_elmo_config()
  else:
    config = base.get_config()
    length = min(config.train.phases[0][1], found.model.max_length)
    config.train.phases = ((1_000, length, 32, 'continue'),)
  if found.name != 'bert':
    config.train.objective = 'lm'
  config.model.name = found.name
  sizes = initial.module_settings(found.name, found.model)
  with config.ignore_type():  # no clip is None
    config.model.update(sizes)
  config.data.tokenizer = tokenizer
  config.init.weights = weights
  return config.lock()


def _check_new(folder: epath.PathLike) -> None:
  """Refuses, before work is done, to write over anything.

  Raises:
    FileExistsError: if there is something.
  """
  folder = epath.Path(folder)
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise FileExistsError(f'{folder} exists already: name a new folder')


@contextlib.contextmanager
def _new_folder(folder: epath.PathLike) -> Iterator[epath.Path]:
  """Makes a folder that appears whole, or not at all."""
  folder = epath.Path(folder)
  if '://' not in str(folder):
    folder = folder.resolve()  # of '.' too
  new = folder.with_name(f'.{folder.name}.{uuid.uuid4().hex}.new')
  try:
    new.mkdir(parents=True)
    yield new
    if folder.exists():
      folder.rmdir()  # empty
    new.rename(folder)
  except BaseException:
    new.rmtree(missing_ok=True)
    raise


def _print_report(report: dict[str, Any], tokenizer: str | None) -> None:
  """Prints what `inspect` found to standard error.

  Args:
    report: that it returned.
    tokenizer: that it was given.
  """
  rows: list[tuple[str, Any]] = []
  for name, value in report.items():
    if name in ('overrides', 'problems'):
      continue
    if isinstance(value, dict):
      rows += [(f'{name}.{key}', item) for key, item in value.items()]
    elif isinstance(value, list):
      more = f' and {len(value) - 6} more' if len(value) > 6 else ''
      rows.append((name, ', '.join(value[:6]) + more or 'none'))
    else:
      rows.append((name, f'{value:,}' if isinstance(value, int) else value))
  reporting.table(rows, report['folder'])
  has_words = report['tokenizer'] or report['architecture'] == 'elmo'
  if not (has_words or report['problems']):
    reporting.say(
      '\nNo vocabulary lies beside them: name theirs by'
      f' {vocabulary_fit.TOKENIZER_OPTION}, and to train.main by'
      f' {initial.TOKENIZER_OPTION}.'
    )
  if 'overrides' in report and not report['problems']:
    reporting.say('\nTo begin a run with them, pass to train.main:')
    reporting.say(
      '  '
      + ' '.join(
        [
          initial.override('init.weights', report['folder']),
          *([initial.override('data.tokenizer', tokenizer)] * bool(tokenizer)),
          *report['overrides'],
        ]
      )
    )


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.weights', description=__doc__.partition('\n')[0]
  )
  jobs = parser.add_subparsers(dest='job', required=True)
  for job, target in (
    ('inspect', None),
    ('export', 'FOLDER'),
    ('import', 'WORKDIR'),
  ):
    options = jobs.add_parser(job)
    trained.add_weights(options, HELP)
    if target:
      options.add_argument('target', metavar=target, help='a new folder')
    else:
      options.add_argument(
        '--json', action='store_true', help='print JSON on standard output'
      )
  arguments = parser.parse_args()
  logging.set_verbosity(logging.WARNING)  # orbax tells every file it writes
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  if arguments.job != 'inspect':
    write = {'export': export, 'import': import_}[arguments.job]
    write(arguments.weights, arguments.target, arguments.tokenizer)
    reporting.say(f'{arguments.weights} is written to {arguments.target}.')
    return
  report = inspect(arguments.weights, arguments.tokenizer)
  if arguments.json:
    print(metrics.as_json(report))
  else:
    _print_report(report, arguments.tokenizer)
  if report['problems']:
    for problem in report['problems']:
      print(f'problem: {problem}', file=sys.stderr)
    sys.exit(1)


if __name__ == '__main__':
  main()
