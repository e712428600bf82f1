"""Leads programs to a Cloud Storage on this machine's loopback.

It counts requests, answers each after a delay, and makes faults to order.
"""

import collections
import contextlib
import datetime
import http.server
import pathlib
import random
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from train.benches.bucket import Answer, failed

# TensorFlow insists on https and on these names: it is led here as by a proxy,
# to a certificate of our own.
_HOSTS = ('www.googleapis.com', 'storage.googleapis.com')
_DAY = datetime.timedelta(days=1)


class Fault:
  """A fault of requests, 'METHOD PATH?QUERY', that match a pattern.

  Attributes:
    status: the request is not done, and answered with this; 0 for none.
    lost: the request is done, and answered with this status; 0 for none.
    cut: the connection ends in the middle of the upload or of the answer.
    delay: seconds to wait before anything.
    share: the part of the requests that is hit, drawn by a seed.
    left: the number of requests that it may still hit.
  """

  def __init__(
    self,
    pattern: str,
    *,
    status: int = 0,
    lost: int = 0,
    cut: bool = False,
    delay: float = 0.0,
    share: float = 1.0,
    times: int = 1,
    seed: int = 0,
  ):
    self._pattern = re.compile(pattern)
    self.status, self.lost, self.cut, self.delay = status, lost, cut, delay
    self.share, self.left = share, times
    self._random = random.Random(seed)

  def hits(self, request: str) -> bool:
    """Returns whether a request is to fail, and counts it."""
    if self.left <= 0 or not self._pattern.search(request):
      return False
    if self._random.random() >= self.share:
      return False
    self.left -= 1
    return True


class _Handler(http.server.BaseHTTPRequestHandler):
  """Answers requests by `server.loopback`."""

  protocol_version = 'HTTP/1.1'
  disable_nagle_algorithm = True  # 40 ms a request
  server: Any

  def do_CONNECT(self) -> None:
    self.send_response(200)
    self.end_headers()
    self.connection = self.server.tls.wrap_socket(
      self.connection, server_side=True
    )
    self.rfile = self.connection.makefile('rb')
    self.wfile = self.connection.makefile('wb', 0)  # '100 Continue' at once
    self.close_connection = False

  def finish(self) -> None:
    super().finish()
    self.connection.close()  # the server closes but the socket below TLS

  def _respond(self) -> None:
    loopback = self.server.loopback
    request = f'{self.command} {self.path}'
    fault = loopback.note(request)
    time.sleep(loopback.delay + (fault.delay if fault else 0.0))
    if 'chunked' in self.headers.get('Transfer-Encoding', '').lower():
      body = b''
      while size := int(self.rfile.readline(), 16):
        body += self.rfile.read(size)
        self.rfile.readline()
      self.rfile.readline()
    else:
      length = int(self.headers.get('Content-Length') or 0)
      cut = fault and fault.cut and self.command != 'GET'
      body = self.rfile.read(length // 2 if cut else length)
    if fault and fault.cut and self.command != 'GET':
      return self._hang_up()
    if fault and fault.status:
      status, headers, body = failed(fault.status, 'made to order')
    else:
      status, headers, body = loopback.answer(
        self.command, self.path, self.headers, body
      )
      if fault and fault.lost:
        status, headers, body = failed(fault.lost, 'made to order')
    if session := re.search(r'[^/]*\?(\w+)$', headers.get('Location', '')):
      # An upload goes on where it began.
      tls = isinstance(self.connection, ssl.SSLSocket)
      headers['Location'] = (
        f'http{"s" if tls else ""}://{self.headers["Host"]}'
        f'{self.path}&upload_id={session[1]}'
      )
    self.send_response(status)
    for name, value in headers.items():
      self.send_header(name, value)
    if 'Content-Length' not in headers:
      self.send_header('Content-Length', str(len(body)))
    self.end_headers()
    if fault and fault.cut:
      self.wfile.write(body[: len(body) // 2])
      return self._hang_up()
    if self.command != 'HEAD':
      self.wfile.write(body)
    self.wfile.flush()

  def _hang_up(self) -> None:
    self.close_connection = True
    self.connection.close()

  do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _respond

  def log_message(self, *_: Any) -> None:
    pass


class _Server(http.server.ThreadingHTTPServer):
  daemon_threads, request_queue_size = True, 128

  def handle_error(self, *_: Any) -> None:
    pass  # clients that were killed


class Loopback:
  """A running server.

  Attributes:
    answer: (method, target, headers, body) -> Answer.
    environment: variables that lead TensorFlow, TensorStore and
      google-cloud-storage here, in a process that has imported none of them.
    requests: 'METHOD PATH?QUERY' of all requests, in order.
    faults: the first that hits a request makes it fail.
    delay: seconds before each answer.
  """

  def __init__(self, answer: Callable[..., Answer], url: str, public: str):
    self.answer = answer
    self.requests: list[str] = []
    self.faults: list[Fault] = []
    self.delay = 0.0
    self.environment = {
      'https_proxy': url,
      'no_proxy': 'localhost,127.0.0.1',
      'CURL_CA_BUNDLE': public,
      'GOOGLE_AUTH_TOKEN_FOR_TESTING': 'none',
      'TENSORSTORE_GCS_HTTP_URL': url,
      'STORAGE_EMULATOR_HOST': url,
    }
    self._lock = threading.Lock()

  def note(self, request: str) -> Fault | None:
    """Counts a request, and returns its fault."""
    with self._lock:
      self.requests.append(request)
      return next((f for f in self.faults if f.hits(request)), None)

  def counts(self, pattern: str = r'(?=.)') -> collections.Counter[str]:
    """Returns the number of requests by the pattern's group 0."""
    found = (re.search(pattern, request) for request in self.requests)
    return collections.Counter(match[0] for match in found if match)


@contextlib.contextmanager
def serve(folder: str, answer: Callable[..., Answer]) -> Iterator[Loopback]:
  """Serves on the loopback; `folder` is for a certificate and its key."""
  server = _Server(('127.0.0.1', 0), _Handler)
  public, private = _certificate(folder)
  server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  server.tls.load_cert_chain(public, private)
  server.loopback = Loopback(
    answer, f'http://127.0.0.1:{server.server_port}', public
  )
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield server.loopback
  finally:
    server.shutdown()
    server.server_close()


def _certificate(folder: str) -> tuple[str, str]:
  """Writes a certificate signed by itself; returns its file and its key's."""
  from cryptography import x509
  from cryptography.hazmat.primitives import hashes, serialization
  from cryptography.hazmat.primitives.asymmetric import ec

  key = ec.generate_private_key(ec.SECP256R1())
  name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _HOSTS[0])])
  names = x509.SubjectAlternativeName([x509.DNSName(host) for host in _HOSTS])
  now = datetime.datetime.now(datetime.UTC)
  made = (
    x509.CertificateBuilder()
    .subject_name(name)
    .issuer_name(name)
    .public_key(key.public_key())
    .serial_number(x509.random_serial_number())
    .not_valid_before(now - _DAY)
    .not_valid_after(now + _DAY)
    .add_extension(names, False)
    .add_extension(x509.BasicConstraints(True, None), True)
    .sign(key, hashes.SHA256())
  )
  pem = serialization.Encoding.PEM
  public, private = pathlib.Path(folder, 'cert'), pathlib.Path(folder, 'key')
  public.write_bytes(made.public_bytes(pem))
  private.write_bytes(
    key.private_bytes(
      pem,
      serialization.PrivateFormat.PKCS8,
      serialization.NoEncryption(),
    )
  )
  return str(public), str(private)
