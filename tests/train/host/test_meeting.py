"""Processes that do not fit together are told so, all of them, at once."""

import concurrent.futures
import json
import socket
import time

import pytest
from launch import free_port

from train.host import meeting


def meet_all(started, seconds=20.0, port=None):
  """Returns what each (process, number of processes) raised; '' for nothing."""
  address = f'localhost:{port or free_port()}'

  def meet(each):
    try:
      meeting.meet(address, each[1], each[0], seconds)
    except (ValueError, TimeoutError) as error:
      return str(error)
    return ''

  with concurrent.futures.ThreadPoolExecutor(len(started)) as threads:
    return list(threads.map(meet, started))


def test_those_that_fit_meet():
  for count in (1, 2, 5):
    assert meet_all([(i, count) for i in range(count)]) == [''] * count


@pytest.mark.parametrize(
  ('started', 'message'),
  [
    (
      [(0, 3), (1, 3), (1, 3)],
      'two processes were started with --process_id=1',
    ),
    ([(0, 2), (1, 3)], '1 was started with --num_processes=3, process 0 with'),
    ([(0, 3), (1, 3), (2, 4)], 'process 2 was started with --num_processes=4'),
  ],
)
def test_a_misfit_is_told_to_all(started, message):
  began = time.monotonic()
  told = meet_all(started)
  assert all(message in each for each in told)
  assert time.monotonic() - began < 10


def test_who_does_not_come_is_named():
  told = meet_all([(0, 4), (2, 4)], seconds=1.0)
  assert all('process 1, 3 did not come' in each for each in told)
  assert all(each.startswith('process 0 waited 1 s') for each in told)
  (alone,) = meet_all([(1, 2)], seconds=1.0)
  assert alone.startswith('process 1 waited 1 s at localhost:')


def test_a_port_in_use_is_told_to_process_0_and_the_others():
  with socket.create_server(('', 0)) as other:
    port = other.getsockname()[1]
    (told,) = meet_all([(0, 2)], port=port)
    assert (
      f'port {port} of this machine cannot be used (Address already' in told
    )
  # Something else answers, as a run that has begun does.
  with socket.create_server(('', 0)) as other:
    other.settimeout(10)

    def hang_up():
      for _ in range(3):
        other.accept()[0].close()

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
      done = threads.submit(hang_up)
      (told,) = meet_all([(1, 2)], port=other.getsockname()[1])
      done.result()
    assert 'what listens there does not wait for process 1' in told


def test_strangers_are_not_counted():
  port = free_port()
  with concurrent.futures.ThreadPoolExecutor(1) as threads:
    first = threads.submit(meet_all, [(0, 2)], port=port)
    for text in (b'GET / HTTP/1.1\r\n\r\n', json.dumps([1]).encode() + b'\n'):
      for _ in range(100):
        try:
          stranger = socket.create_connection(('localhost', port))
          break
        except OSError:
          time.sleep(0.05)
      with stranger:
        stranger.sendall(text)
    assert meet_all([(1, 2)], port=port) == ['']
    assert first.result() == ['']


@pytest.mark.parametrize('address', ['localhost', ':1', 'host:', 'h:0', 'h:x'])
def test_an_address_without_host_or_port_is_refused(address):
  with pytest.raises(ValueError, match='expected HOST:PORT of process 0'):
    meeting.meet(address, 2, 0, 1.0)
