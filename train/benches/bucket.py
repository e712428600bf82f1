"""A Google Cloud Storage in memory, in Python alone.

It speaks as much of Cloud Storage's JSON and XML interfaces as TensorFlow's
file system, TensorStore and google-cloud-storage use; `loopback` serves it.
"""

import base64
import datetime
import itertools
import json
import re
import threading
import urllib.parse
from collections.abc import Mapping
from typing import NamedTuple

from train.host.files import Json

_PERMISSIONS = ('create', 'delete', 'get', 'list', 'update')
Answer = tuple[int, dict[str, str], bytes]  # status, headers, body


class Object(NamedTuple):
  """An object of a bucket; `session` of the resumable upload that made it."""

  data: bytes
  generation: int
  updated: str
  metadata: dict[str, str]
  session: str = ''


class _Session(NamedTuple):
  """A resumable upload."""

  name: str
  query: dict[str, str]
  data: bytearray


class Storage:
  """Buckets by name; the objects of each by name.

  Attributes:
    buckets: name -> object's name -> Object.
    refuses: permissions that nobody has, such as 'create'.
  """

  def __init__(self, *buckets: str):
    self.buckets: dict[str, dict[str, Object]] = {name: {} for name in buckets}
    self.refuses: set[str] = set()
    self._sessions: dict[str, _Session] = {}
    self._generations = itertools.count(1_000_000)
    self._lock = threading.Lock()

  def put(self, bucket: str, name: str, data: bytes) -> None:
    """Writes an object."""
    self.buckets[bucket][name] = self._made(data, {})

  def answer(
    self, method: str, target: str, headers: Mapping[str, str], body: bytes
  ) -> Answer:
    """Answers one request."""
    with self._lock:
      return self._answer(method, target, headers, body)

  def _answer(
    self, method: str, target: str, headers: Mapping[str, str], body: bytes
  ) -> Answer:
    parts = urllib.parse.urlsplit(target)
    query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    path = [urllib.parse.unquote(part) for part in parts.path.split('/')[1:]]
    if path[0] == 'upload':
      return self._upload(path[4], query, headers, body)
    if path[0] == 'download':
      return self._content(path[4], path[6], query, headers)
    if path[:2] != ['storage', 'v1']:  # XML: /BUCKET/OBJECT
      return self._content(path[0], '/'.join(path[1:]), query, headers)
    bucket = self.buckets.get(path[3])
    if bucket is None:
      return failed(404, 'The specified bucket does not exist.')
    if path[4:] == ['storageLayout']:
      return _found(
        {'bucket': path[3], 'hierarchicalNamespace': {'enabled': False}}
      )
    if path[4:] == ['iam', 'testPermissions']:
      asked = [
        name
        for key, name in urllib.parse.parse_qsl(parts.query)
        if key == 'permissions'
      ]
      return _found({'permissions': [p for p in asked if self._may(p)]})
    if len(path) == 4:
      return _found({'name': path[3], 'id': path[3], 'location': 'US'})
    if len(path) == 5:
      return self._list(path[3], query)
    name = path[5]
    if path[6:7] == ['rewriteTo']:
      if name not in bucket:
        return failed(404, f'No such object: {path[3]}/{name}')
      if gone := _replaced(bucket, name, query.get('sourceGeneration')):
        return gone
      old = bucket[name]
      self.buckets[path[8]][path[10]] = self._made(old.data, old.metadata)
      resource = self._resource(path[8], path[10])
      return _found({'done': True, 'resource': resource})
    if query.get('alt') == 'media':
      return self._content(path[3], name, query, headers)
    if gone := _replaced(bucket, name, query.get('generation')):
      return gone
    if unlike := _unlike(bucket, name, query):
      return unlike
    if name not in bucket:
      return failed(404, f'No such object: {path[3]}/{name}')
    if method == 'DELETE':
      if not self._may('delete'):
        return failed(403, 'storage.objects.delete is denied')
      del bucket[name]
      return 204, {}, b''
    return _found(self._resource(path[3], name))

  def _may(self, permission: str) -> bool:
    return permission.rpartition('.')[2] in {*_PERMISSIONS} - self.refuses

  def _made(
    self, data: bytes, metadata: dict[str, str], session: str = ''
  ) -> Object:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec='milliseconds')
    return Object(
      data,
      next(self._generations),
      now.replace('+00:00', 'Z'),
      metadata,
      session,
    )

  def _list(self, of: str, query: Mapping[str, str]) -> Answer:
    prefix, delimiter = query.get('prefix', ''), query.get('delimiter')
    names, prefixes = [], set()
    for name in sorted(self.buckets[of]):
      if not name.startswith(prefix):
        continue
      rest = name[len(prefix) :]
      if delimiter and delimiter in rest:
        prefixes.add(prefix + rest.partition(delimiter)[0] + delimiter)
      else:
        names.append(name)
    first = int(query.get('pageToken') or 0)
    last = first + int(query.get('maxResults') or 1_000)
    more = {'nextPageToken': str(last)} if last < len(names) else {}
    items = [self._resource(of, name) for name in names[first:last]]
    return _found({'prefixes': sorted(prefixes), 'items': items, **more})

  def _content(
    self,
    of: str,
    name: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
  ) -> Answer:
    bucket = self.buckets.get(of)
    if bucket is None:
      return failed(404, 'The specified bucket does not exist.')
    if name not in bucket:
      return failed(404, f'No such object: {of}/{name}')
    if gone := _replaced(bucket, name, query.get('generation')):
      return gone
    if unlike := _unlike(bucket, name, query):
      return unlike
    data, generation = bucket[name][:2]
    if query.get('ifGenerationNotMatch') == str(generation):
      return 304, {}, b''
    answer = {
      'x-goog-generation': str(generation),
      'Content-Type': 'application/octet-stream',
    }
    asked = re.fullmatch(r'bytes=(\d*)-(\d*)', headers.get('Range') or '')
    if not asked:
      return 200, answer, data
    first, last = asked.groups()
    begin = int(first) if first else max(len(data) - int(last), 0)
    end = min(int(last) + 1, len(data)) if first and last else len(data)
    if begin >= len(data):
      return 416, {}, b''
    answer['Content-Range'] = f'bytes {begin}-{end - 1}/{len(data)}'
    return 206, answer, data[begin:end]

  def _upload(
    self,
    of: str,
    query: dict[str, str],
    headers: Mapping[str, str],
    body: bytes,
  ) -> Answer:
    bucket = self.buckets.get(of)
    if bucket is None:
      return failed(404, 'The specified bucket does not exist.')
    if not self._may('create'):
      return failed(403, 'storage.objects.create is denied')
    if session := query.get('upload_id'):
      return self._resume(of, session, headers, body)
    metadata: dict[str, str] = {}
    if query['uploadType'] == 'multipart':
      boundary = re.search(r'boundary="?([^";]+)', headers['Content-Type'])[1]
      first, second = body.split(b'--' + boundary.encode())[1:3]
      told = json.loads(first.partition(b'\r\n\r\n')[2])
      query['name'], metadata = told['name'], told.get('metadata', {})
      body = second.partition(b'\r\n\r\n')[2][:-2]
    elif body and query['uploadType'] == 'resumable':
      query.setdefault('name', json.loads(body).get('name'))
    name = query['name']
    if unlike := _unlike(bucket, name, query):
      return unlike
    if query['uploadType'] == 'resumable':
      session = f's{next(self._generations)}'
      self._sessions[session] = _Session(name, query, bytearray())
      return 200, {'Location': f'{headers.get("Host", "")}?{session}'}, b''
    bucket[name] = self._made(body, metadata)
    return _found(self._resource(of, name), bucket[name].generation)

  def _resume(
    self, of: str, session: str, headers: Mapping[str, str], body: bytes
  ) -> Answer:
    bucket = self.buckets[of]
    if session not in self._sessions:
      return failed(410, 'This upload has ended.')
    name, query, data = self._sessions[session]
    if name in bucket and bucket[name].session == session:
      return _found(self._resource(of, name))
    # 'bytes 0-7/8', 'bytes 0-7/*' or 'bytes */8': how far did it come?
    place = headers.get('Content-Range', f'bytes 0-{len(body) - 1}/{len(body)}')
    span, _, total = place.removeprefix('bytes ').partition('/')
    if span != '*':
      data[int(span.partition('-')[0]) :] = body
    if total == '*' or len(data) < int(total):
      reached = {'Range': f'bytes=0-{len(data) - 1}'} if data else {}
      return 308, reached, b''
    if unlike := _unlike(bucket, name, query):
      return unlike
    bucket[name] = self._made(bytes(data), {}, session)
    return _found(self._resource(of, name), bucket[name].generation)

  def _resource(self, of: str, name: str) -> dict[str, Json]:
    import google_crc32c

    found = self.buckets[of][name]
    checksum = google_crc32c.Checksum(found.data)
    return {
      'name': name,
      'bucket': of,
      'size': str(len(found.data)),
      'generation': str(found.generation),
      'metageneration': '1',
      'updated': found.updated,
      'timeCreated': found.updated,
      'metadata': found.metadata,
      'crc32c': base64.b64encode(checksum.digest()).decode(),
    }


def failed(status: int, message: str) -> Answer:
  """Returns the answer of a request that failed."""
  body = {'error': {'code': status, 'message': message}}
  return status, {'Content-Type': 'application/json'}, json.dumps(body).encode()


def _found(value: Json, generation: int = 0) -> Answer:
  headers = {'Content-Type': 'application/json'}
  if generation:
    headers['x-goog-generation'] = str(generation)
  return 200, headers, json.dumps(value).encode()


def _replaced(
  bucket: Mapping[str, Object], name: str, generation: str | None
) -> Answer | None:
  """Returns the answer if a generation is asked for that was replaced."""
  there = str(bucket[name].generation) if name in bucket else generation
  if generation not in (None, there):
    return failed(404, f'No such object: {name}#{generation}')
  return None


def _unlike(
  bucket: Mapping[str, Object], name: str, query: Mapping[str, str]
) -> Answer | None:
  """Returns a refusal if the object has another generation than the request."""
  generation = bucket[name].generation if name in bucket else 0
  asked = query.get('ifGenerationMatch')
  if asked is not None and int(asked) != generation:
    return failed(412, 'At least one of the pre-conditions did not hold.')
  return None
