"""Buckets are checked before work; what is uploaded arrives whole."""

import re
import sys

import pytest

from data import hub, scratch, storage
from data.scoring import kinds
from data.store import corpus
from data.tasks import files
from data.text import sources, text_files
from data.vocabulary import tokenization
from train.benches.loopback import Fault
from train.host import files as host_files
from train.params import opened


@pytest.mark.parametrize(
  ('path', 'message'),
  [
    ('gs:/books/a', 'gs:/books/a: expected gs://BUCKET/NAME'),
    ('gs:books', 'expected gs://BUCKET/NAME'),
    ('hf:gs:/books/a', 'gs:/books/a: expected gs://BUCKET/NAME'),
    ('hf:gs://Bad:test', "gs://Bad: 'Bad' cannot be the name of a bucket"),
    ('gs://', 'gs://: expected gs://BUCKET/NAME'),
    ('gs:///a', 'expected gs://BUCKET/NAME'),
    ('gs://Books/a', "'Books' cannot be the name of a bucket"),
    ('gs://b/a', "'b' cannot be the name of a bucket"),
  ],
)
def test_what_is_no_path(path, message):
  with pytest.raises(ValueError, match=message) as error:
    storage.check_buckets([path])
  assert '\n' not in str(error.value)
  assert storage.split('gs://books') == ('books', '')
  assert storage.split('gs://books/a/b/') == ('books', 'a/b')


OTHERS = ('https://host/a', 'file:///a', 's3://bucket/a', 'az://a/b')


@pytest.mark.parametrize('path', (*OTHERS, 'HTTP://host/a', 'hdfs://a'))
@pytest.mark.parametrize(
  'read',
  [
    storage.is_remote,
    text_files.find,
    sources.open_source,
    tokenization.load,
    hub.find,
    corpus.open_store,
    lambda path: files.find(path, (), ('a',)),
    lambda path: opened.open_weights(path),
    lambda path: host_files.check_writable(path),
    lambda path: host_files.check_folder('--workdir', path),
    lambda path: kinds.own_task(kind='tagging', train=path, dev=path),
    lambda path: scratch.write_bytes(path, b''),
    lambda path: storage.check_buckets([path]),
    lambda path: storage.check_buckets([], [path]),
    lambda path: storage.check_buckets([f'a name={path}']),
    lambda path: text_files.check_file(path),
  ],
)
def test_addresses_of_other_places_are_refused(path, read):
  scheme = re.escape(path.partition('//')[0])
  with pytest.raises(ValueError, match=f'or written to {scheme}//, expected a'):
    read(path)


def test_only_the_pattern_has_wildcards(tmp_path):
  folder = tmp_path / 'exp [v2]*'
  folder.mkdir()
  for name in ('b.txt', 'a.txt', 'a.json'):
    (folder / name).touch()
  (tmp_path / 'exp v').mkdir()  # what the folder's name matches as a pattern
  found = storage.find_files(folder, '*.txt')
  assert [path.name for path in found] == ['a.txt', 'b.txt']
  assert all(path.exists() for path in found)
  assert not storage.find_files(tmp_path / 'none', '*')


def test_each_bucket_is_asked_once(gs, loopback):
  values = [None, 3, 'a text', 'runs/x', 'see s3://other', f'{gs}/a', f'{gs}/b']
  values += ['hf://some/model', storage.Text('s3://is a place.')]
  values += ['hf:glue:cola', f'hf:{gs}/set:train']
  storage.check_buckets(values, [f'{gs}/c', f'{gs}/d'])
  name = gs.removeprefix('gs://')
  assert len(loopback.requests) == 2
  assert loopback.requests[0].startswith(f'GET /storage/v1/b/{name}?')
  assert f'{name}/iam/testPermissions' in loopback.requests[1]


def test_a_bucket_that_is_not_there(loopback):
  with pytest.raises(OSError) as error:
    storage.check_buckets(['gs://no-such-bucket/a'])
  assert str(error.value).startswith(
    'gs://no-such-bucket/a: there is no bucket no-such-bucket.'
  )
  assert 'gcloud storage buckets create gs://no-such-bucket' in str(error.value)


def test_no_permission_to_write(gs, loopback):
  loopback.storage.refuses |= {'create', 'delete'}
  storage.check_buckets([f'{gs}/a'])  # reading needs none of them
  with pytest.raises(OSError) as error:
    storage.check_buckets([f'{gs}/a'], [f'{gs}/made'])
  assert str(error.value).startswith(
    f'{gs}/made: no permission for storage.objects.create,'
    ' storage.objects.delete. '
  )
  assert '--role roles/storage.objectUser' in str(error.value)


def test_no_permission_to_see_the_bucket(gs, loopback):
  loopback.faults.append(Fault('GET', status=403, times=2))
  storage.check_buckets([f'{gs}/a'])  # a public bucket's objects may be read
  with pytest.raises(OSError, match=f'^{gs}/b: no permission for storage.buck'):
    storage.check_buckets([f'{gs}/a'], [f'{gs}/b'])


def test_the_library_is_missing(monkeypatch):
  monkeypatch.setitem(sys.modules, 'google.cloud', None)
  monkeypatch.setitem(sys.modules, 'google.api_core', None)
  with pytest.raises(OSError, match="pip install 'google-cloud-storage>=3,<4'"):
    storage.check_buckets(['gs://books/a'])


def test_there_are_no_credentials(monkeypatch):
  import google.auth

  def refuse(*_, **__):
    raise google.auth.exceptions.DefaultCredentialsError('none found')

  monkeypatch.delenv('STORAGE_EMULATOR_HOST', raising=False)
  monkeypatch.setattr(google.auth, 'default', refuse)
  storage._client.cache_clear()
  with pytest.raises(OSError) as error:
    storage.check_buckets(['gs://books/a'])
  assert str(error.value).startswith(
    'gs://books/a: there are no valid credentials for Cloud Storage (none'
    ' found). On your own machine: gcloud auth application-default login.'
  )


@pytest.mark.parametrize(
  'fault',
  [
    dict(status=503),
    dict(status=429),
    dict(lost=503),
    dict(cut=True),
  ],
  ids=str,
)
def test_an_upload_under_faults(gs, loopback, tmp_path, fault):
  file = tmp_path / 'file'
  file.write_bytes(bytes(range(256)) * 40_000)  # goes up in several requests
  loopback.faults.append(Fault('POST|PUT', **fault))
  generation = storage.upload(file, f'{gs}/a/b')
  name = gs.removeprefix('gs://')
  there = loopback.storage.buckets[name]['a/b']
  assert (there.data, there.generation) == (file.read_bytes(), generation)
  assert not loopback.faults[0].left


def test_the_last_file_is_the_last(gs, loopback, tmp_path):
  for name in ('a', 'm', 'z', '.hidden'):
    (tmp_path / name).write_text(name)
  storage.upload_folder(tmp_path, f'{gs}/folder/', last='m')
  bucket = loopback.storage.buckets[gs.removeprefix('gs://')]
  assert {name: each.data for name, each in bucket.items()} == {
    f'folder/{name}': name.encode() for name in 'amz'
  }
  in_order = sorted(bucket, key=lambda name: bucket[name].generation)
  assert in_order == ['folder/a', 'folder/z', 'folder/m']


def test_two_uploads_to_one_folder(gs, loopback, tmp_path, monkeypatch):
  for name in ('a', 'last'):
    (tmp_path / name).write_text('ours')
  bucket = gs.removeprefix('gs://')
  upload = storage.upload

  def and_another(source, path):
    generation = upload(source, path)
    loopback.storage.put(bucket, 'folder/a', b'theirs')
    loopback.storage.put(bucket, 'folder/last', b'theirs, of files now mixed')
    return generation

  monkeypatch.setattr(storage, 'upload', and_another)
  with pytest.raises(OSError, match='another process changed a while this one'):
    storage.upload_folder(tmp_path, f'{gs}/folder', last='last')
  assert loopback.storage.buckets[bucket].keys() == {'folder/a'}


def test_space_on_a_disk(tmp_path):
  storage.check_space(tmp_path, 10, 'it', 'go')
  with pytest.raises(OSError) as error:
    storage.check_space(tmp_path, 10**18, 'the copy', 'choose another')
  assert str(error.value).startswith(
    f'the copy needs 1,000,000,000,000,000,000 bytes in {tmp_path}, where '
  )
  assert str(error.value).endswith('Make room, or choose another')


def test_errors_are_explained():
  from google.api_core import exceptions
  from google.auth import exceptions as auth

  def told(error):
    return storage.explain(error, 'gs://books/a')

  assert storage.explain(ValueError('of ours')) is None
  assert 'no valid credentials' in told(auth.RefreshError('expired'))
  assert 'there is no bucket books' in told(exceptions.NotFound('x'))
  assert 'refused a request: 403 x' in told(exceptions.Forbidden('x'))
  assert 'however often it was asked: 503 x' in told(
    exceptions.ServiceUnavailable('x\n')
  )
  assert storage.explain(exceptions.NotFound('x')).startswith('not found on')


def test_tensorflows_errors_are_explained():
  def told(kind, text):
    made = type(kind, (Exception,), {'__module__': 'tensorflow.python.errors'})
    return storage.explain(made(text))

  refused = told('PermissionDeniedError', 'code\n403')
  assert 'refused a request: code 403' in refused
  assert told('NotFoundError', 'x') == 'not found on Cloud Storage: x'
  given_up = told('AbortedError', 'All 10 retry attempts failed')
  assert 'All 10 retry attempts failed. The same' in given_up
  unknown = told('UnimplementedError', "scheme 'hf' not implemented")
  assert unknown.startswith("scheme 'hf' not implemented: expected a path of")
