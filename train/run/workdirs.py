"""The folder of a run: its lock, its config, its results."""

import contextlib
import fcntl
import hashlib
import json
import pathlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping

import ml_collections
from etils import epath

from data import storage
from data.text import languages, text_files
from train.host import files, processes
from train.host.files import Json
from train.run import lease, settings

Results = Mapping[str, Json]  # content of results.json

# Of a workdir: the checkpoint of the best model, where a run keeps one.
MODEL_FOLDER = 'model'
# The text and the vocabulary of a pre-training.
STORE_FILE = 'trained_on.json'
# Of several runs of one fine-tuning, in the folder that holds theirs.
SUMMARY_FILE = 'summary.json'
# Of a fine-tuning whose numbers were not finite: why it ended.
DIVERGED_FILE = 'diverged.txt'


class BusyError(ValueError):
  """Another process trains in a workdir."""


@contextlib.contextmanager
def sole_writer(workdir: epath.PathLike) -> Iterator[Callable[..., None]]:
  """Makes a workdir, and keeps a second process out of it.

  A local workdir has a lock of the operating system, which a dead process
  frees; on Cloud Storage it has a `lease.Lease`. Yields `Lease.check_held`, or
  for a local workdir a function that checks nothing. Raises BusyError (on Cloud
  Storage another ValueError) if another process trains there.
  """
  workdir = epath.Path(workdir)
  if storage.is_remote(workdir):
    with lease.Lease(workdir) as held:
      yield held.check_held
    return
  try:
    workdir.mkdir(parents=True, exist_ok=True)
    lock = open(workdir / '.lock', 'a')
  except OSError as error:
    raise OSError(
      f'--workdir {workdir} cannot be written: {error}. Pass one that can'
    ) from error
  with lock as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
      raise BusyError(
        f'another process trains in {workdir}: wait for its end, or pass'
        ' another --workdir'
      ) from error
    yield lambda sure=False: None


def check_shared(workdir: epath.PathLike) -> None:
  """Checks that all processes see the workdir that process 0 writes."""
  if processes.is_alone():
    return
  token = epath.Path(workdir) / f'.seen-by-all-{uuid.uuid4().hex}'
  if processes.is_first():
    token.touch()
  # A name that nobody has looked up before is in no cache of a file system.
  token = token.with_name(processes.gather(token.name)[0])
  seen = processes.gather(str(token.exists()))
  if processes.is_first():
    token.unlink()
  blind = [str(i) for i, answer in enumerate(seen) if answer != 'True']
  if blind:
    raise ValueError(
      f'--workdir {workdir}: process {", ".join(blind)} of {len(seen)} does'
      ' not see what process 0 writes there: name a folder on storage that all'
      ' hosts share, as gs://BUCKET/FOLDER'
    )


def write_results(workdir: epath.PathLike, results: Results) -> None:
  """Writes results.json."""
  files.write_atomically(
    epath.Path(workdir) / 'results.json',
    json.dumps(results, indent=2, sort_keys=True) + '\n',
  )


def read_config(workdir: epath.PathLike) -> ml_collections.ConfigDict | None:
  """Returns the config of a workdir's run; None for a new one."""
  path = epath.Path(workdir) / 'config.json'
  if not path.exists():
    return None
  problem = 'no section model with a name; published weights need fine-tuning'
  try:
    found = text_files.read_json(path)
    if found['model']['name']:
      if 'packed' in (data := found.get('data', {})):
        data['packed'] = settings.packed_texts(
          data['packed'], data.pop('packed_texts', None)
        )
      return ml_collections.ConfigDict(found)
  except ValueError as error:
    problem = error
  except (KeyError, TypeError):
    pass
  raise ValueError(f'{path}: not the config of a run: {problem}')


def read_results(workdir: epath.PathLike) -> Results | None:
  """Returns results.json of a finished run; None if the run is not finished."""
  path = epath.Path(workdir) / 'results.json'
  return files.read_json(path) if path.exists() else None


def default_store(config: ml_collections.ConfigDict) -> str:
  """Returns the token store's folder where `data.folder` is empty."""
  data = config.data
  what = (data.source, data.tokenizer, data.document_break, data.held_out)
  stem = pathlib.Path(data.source).stem
  if languages.has_folders(data.source):  # which may change, the name not
    what += (data.language_exponent,)
    stem = pathlib.Path(*languages.paths(data.source)).name
  elif names := languages.split(data.source):
    what += (data.language_exponent,)
    stem = '-'.join(names)[:32]
  if data.text_field != 'text':
    what += (data.text_field,)
  if (units := data.get('units', 'wordpiece')) != 'wordpiece':
    what += (units,)
  short = hashlib.sha256(repr(what).encode()).hexdigest()[:8]
  stem = re.sub(r'\W+', '-', stem).strip('-')
  return f'runs/stores/{"-".join(filter(None, (stem, short)))}'
