"""Object storage: what is wrong with a gs:// path is said before any work.

TensorFlow's file system, through `epath`, reads and lists gs:// paths;
google-cloud-storage does what it cannot: one clear answer on a bucket, uploads
in one request, and writing only where nobody else has written.
"""

import contextlib
import functools
import glob
import importlib.util
import os
import pathlib
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from typing import Any

# TensorFlow would show an object's size of up to five seconds ago.
os.environ.setdefault('GCS_STAT_CACHE_MAX_AGE', '0')
HUB = 'hf://'  # before a name of weights, which `data.hub` reads
# Seconds that a request is tried again for, and that one try may take.
PATIENCE, TIMEOUT = 120.0, 60.0
_READER = 'roles/storage.legacyBucketReader'
_WRITER = 'roles/storage.objectUser'
_NEEDED = tuple(f'storage.objects.{may}' for may in ['create', 'delete', 'get'])
# A data set of Hugging Face in a bucket, with the names of a part behind it.
_SET = re.compile(r'^hf:(gs:(?://)?[^:]*).*')
_SCHEME = re.compile(r'([A-Za-z][A-Za-z0-9+.-]*)://')
# https://cloud.google.com/storage/docs/buckets#naming
_BUCKET = re.compile(r'[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]')


class Text(str):
  """A text that is given as an argument: never taken for a path."""


def is_remote(path: str | os.PathLike) -> bool:
  """Returns whether a path is on Cloud Storage: gs://BUCKET/NAME.

  Raises ValueError for the addresses of other places, which nothing here reads.
  """
  scheme = _SCHEME.match(os.fspath(path))
  if scheme and scheme[1] != 'gs':
    raise ValueError(
      f'{os.fspath(path)}: nothing is read from or written to {scheme[0]},'
      ' expected a path of this machine or gs://BUCKET/NAME. Copy it to one of'
      ' them'
    )
  return bool(scheme)


def find_files(folder: str | os.PathLike, pattern: str) -> list[Any]:
  """Returns the paths below a folder that match a glob pattern, sorted.

  Only `pattern` has wildcards: the folder may be named 'exp [v2]', which
  `epath.Path.glob` takes for a pattern, too.
  """
  from etils import epath

  return sorted(epath.Path(glob.escape(os.fspath(folder))).glob(pattern))


def split(path: str | os.PathLike) -> tuple[str, str]:
  """Returns (bucket, name of the object); ValueError if it is no gs://B/N."""
  text = os.fspath(path)
  bucket, _, name = text.removeprefix('gs://').partition('/')
  if not text.startswith('gs://') or not bucket:
    raise ValueError(f'{text}: expected gs://BUCKET/NAME')
  if not _BUCKET.fullmatch(bucket):
    raise ValueError(
      f'{text}: {bucket!r} cannot be the name of a bucket; expected'
      ' gs://BUCKET/NAME, with 3 or more of a-z, 0-9, -, _ and . in BUCKET'
    )
  return bucket, name.strip('/')


def check_buckets(reads: Iterable[Any], writes: Iterable[Any] = ()) -> None:
  """Checks the buckets of those values that are paths on Cloud Storage.

  Asks for each bucket once. `writes` are folders and files that a command makes
  there; a `Text` is no path. Raises ValueError for addresses of other places,
  also in NAME=PATH, and for what begins with gs: and is no gs://BUCKET/NAME;
  OSError with the cure for a missing library, credentials, bucket or
  permission.
  """
  reads, writes = _paths_in(reads), _paths_in(writes)
  writable = [path for path in writes if _is_meant(path)]
  wanted: dict[str, str] = {}
  for path in (*(path for path in reads if _is_meant(path)), *writable):
    wanted.setdefault(split(path)[0], os.fspath(path))
  for name, path in wanted.items():
    _check_bucket(name, path, [p for p in writable if split(p)[0] == name])


def _paths_in(values: Iterable[Any]) -> list[str]:
  """Returns the values that may be paths; ValueError for other places."""
  paths = [
    _SET.sub(r'\1', os.fspath(value))
    for value in values
    if isinstance(value, str | os.PathLike) and not isinstance(value, Text)
  ]
  for path in paths:
    for part in (path, path.partition('=')[2]):
      if not part.startswith(HUB):
        is_remote(part)
  return paths


def _is_meant(path: str) -> bool:
  return path.startswith('gs:')


def _check_bucket(name: str, path: str, writes: list[Any]) -> None:
  asked = client(path)
  from google.api_core import exceptions

  try:
    found = asked.get_bucket(name, timeout=TIMEOUT, retry=retry())
  except exceptions.Forbidden:
    if writes:
      raise OSError(
        explain_permission(writes[0], ['storage.buckets.get'])
      ) from None
    return  # of a public bucket one may read the objects alone
  except Exception as error:
    raise OSError(explain(error, path) or f'{path}: {error}') from error
  if not writes:
    return
  if getattr(found, 'hierarchical_namespace_enabled', False) and not (
    importlib.util.find_spec('google.cloud.storage_control_v2')
  ):
    raise OSError(
      f'{path}: bucket {name} has a hierarchical namespace, which needs one'
      ' more package: pip install google-cloud-storage-control'
    )
  try:
    granted = found.test_iam_permissions(_NEEDED, timeout=TIMEOUT)
  except exceptions.GoogleAPIError:
    return  # not every server answers that; the first write will tell
  if missing := sorted({*_NEEDED} - {*granted}):
    raise OSError(explain_permission(writes[0], missing))


def await_bucket(path: str | os.PathLike) -> None:
  """Returns when the bucket of a path is there, else OSError after `PATIENCE`.

  In one that is gone TensorFlow's file system asks for folders without an end.
  """
  end = time.monotonic() + PATIENCE
  while True:
    try:
      _check_bucket(split(path)[0], os.fspath(path), [])
      return
    except OSError:
      if time.monotonic() > end:
        raise
    time.sleep(1.0)


def client(path: str | os.PathLike) -> Any:
  """Returns a client of Cloud Storage; OSError without library, credentials."""
  # TensorFlow, which reads the path, tells of itself at a lower level.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')  # as JAX sets it
  try:
    from google.auth import exceptions
    from google.cloud import storage  # noqa: F401
  except ImportError as error:
    raise OSError(
      f'{path}: {error}. Cloud Storage needs one more package:'
      " pip install 'google-cloud-storage>=3,<4'"
    ) from None
  try:
    return _client()
  except exceptions.GoogleAuthError as error:
    raise OSError(explain(error, path)) from error


@functools.cache
def _client() -> Any:
  from google.cloud import storage

  return storage.Client(project=None)  # objects are named without one


def retry(seconds: float | None = None) -> Any:
  """Returns google-cloud-storage's rule for trying again, for `PATIENCE`."""
  from google.cloud.storage import retry as rules

  return rules.DEFAULT_RETRY.with_timeout(seconds or PATIENCE)


def blob(path: str | os.PathLike) -> Any:
  """Returns google-cloud-storage's handle of an object; no request is made."""
  bucket, name = split(path)
  return client(path).bucket(bucket).blob(name)


@contextlib.contextmanager
def _explained(path: str | os.PathLike) -> Iterator[None]:
  try:
    yield
  except Exception as error:
    if told := explain(error, path):
      raise OSError(told) from error
    raise


def is_object(path: str | os.PathLike) -> bool:
  """Returns whether a path names an object, and no folder or bucket."""
  _, name = split(path)
  with _explained(path):
    return bool(name) and blob(path).exists(timeout=TIMEOUT, retry=retry())


def upload(source: str | os.PathLike, path: str | os.PathLike) -> int:
  """Uploads a local file; a reader sees the old object or the whole new one.

  Returns the generation of the new object. Raises OSError if that fails, as the
  functions below do.
  """
  made = blob(path)
  with _explained(path):
    made.upload_from_filename(
      os.fspath(source),
      content_type='application/octet-stream',
      timeout=TIMEOUT,
      retry=retry(),
    )
  return made.generation


def write(path: str | os.PathLike, data: bytes) -> None:
  """Writes an object; a reader sees the old one or the whole new one."""
  with _explained(path):
    blob(path).upload_from_string(
      data,
      content_type='application/octet-stream',
      timeout=TIMEOUT,
      retry=retry(),
    )


def upload_folder(
  source: pathlib.Path, path: str | os.PathLike, *, last: str
) -> None:
  """Uploads the files of a local folder; the file `last` says all are there.

  Hidden files stay. Raises OSError, and `last` is nowhere, if another process
  uploaded into the same folder meanwhile.
  """
  bucket, folder = split(path)
  prefix = f'{folder}/' if folder else ''
  names = sorted(f.name for f in source.iterdir() if f.name[0] != '.')
  names.remove(last)
  ours = {
    name: upload(source / name, f'gs://{bucket}/{prefix}{name}')
    for name in names
  }
  asked = client(path)
  with _explained(path):
    found = asked.list_blobs(
      bucket, prefix=prefix, timeout=TIMEOUT, retry=retry()
    )
    there = {each.name: each.generation for each in found}
  for name, generation in ours.items():
    if there.get(prefix + name) != generation:
      mixed = [prefix + last]  # it would speak of files of both
      asked.bucket(bucket).delete_blobs(mixed, on_error=lambda _: None)
      raise OSError(
        f'{path}: another process changed {name} while this one uploaded it.'
        ' Let one process at a time write there, and start again'
      )
  upload(source / last, f'gs://{bucket}/{prefix}{last}')


def remove_folder(path: str | os.PathLike, *, first: str) -> None:
  """Removes a folder's objects, beginning with the one named `first`.

  An object that is gone already counts as removed: the answer to a request that
  was done may be lost, and the request is made again.
  """
  bucket, folder = split(path)
  with _explained(path):
    found = list(
      client(path).list_blobs(
        bucket, prefix=f'{folder}/', timeout=TIMEOUT, retry=retry()
      )
    )
    found.sort(key=lambda each: each.name != f'{folder}/{first}')
    client(path).bucket(bucket).delete_blobs(
      [each.name for each in found],
      on_error=lambda _: None,
      timeout=TIMEOUT,
      retry=retry(),
    )


def check_space(
  folder: str | os.PathLike, needed: int, what: str, cure: str
) -> None:
  """Raises OSError if a local folder has less than `needed` bytes free."""
  free = shutil.disk_usage(folder).free
  if needed > free:
    raise OSError(
      f'{what} needs {needed:,} bytes in {folder}, where {free:,} are free.'
      f' Make room, or {cure}'
    )


def explain_permission(path: str | os.PathLike, missing: list[str]) -> str:
  """Returns the message on missing permissions of a bucket, with the cure."""
  bucket, _ = split(path)
  grant = f'gcloud storage buckets add-iam-policy-binding gs://{bucket}'
  return (
    f'{path}: no permission for {", ".join(missing)}. The owner of the bucket'
    " gives this machine's account ACCOUNT (gcloud auth list) two roles, if it"
    ' is a person with --member user:ACCOUNT:\n'
    f'  {grant} --member serviceAccount:ACCOUNT --role {_WRITER}\n'
    f'  {grant} --member serviceAccount:ACCOUNT --role {_READER}'
  )


def explain(error: BaseException, path: str | os.PathLike = '') -> str | None:
  """Returns one message, with the cure, for an error of storage; else None."""
  module, kind = type(error).__module__, type(error).__name__
  if not module.startswith(('google.', 'tensorflow.', 'requests.')):
    return None
  said = ' '.join(str(error).split())[:300]
  where = f'{path}: ' if path else ''
  if module.startswith('google.auth'):
    return (
      f'{where}there are no valid credentials for Cloud Storage ({said}). On'
      ' your own machine: gcloud auth application-default login. A TPU VM has'
      ' those of its service account; another VM, if it was made with --scopes'
      ' cloud-platform'
    )
  if kind == 'NotFound' and path:
    bucket, _ = split(path)
    return (
      f'{where}there is no bucket {bucket}. Yours: gcloud storage buckets list'
      '. A new one: gcloud storage buckets create'
      f' gs://{bucket} --location REGION'
    )
  if kind in ('Forbidden', 'PermissionDeniedError', 'Unauthorized'):
    return (
      f'{where}Cloud Storage refused a request: {said}. Check the account'
      f' (gcloud auth list) and its roles on the bucket: {_WRITER}, {_READER}'
    )
  if kind in ('NotFound', 'NotFoundError'):
    return f'{where}not found on Cloud Storage: {said}'
  if kind == 'UnimplementedError':  # of a place that TensorFlow does not know
    return f'{where}{said}: expected a path of this machine or gs://BUCKET/NAME'
  return (
    f'{where}Cloud Storage did not answer, however often it was asked:'
    f' {said}. The same command continues once it does'
  )
