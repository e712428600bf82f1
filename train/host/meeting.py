"""Processes meet before JAX connects them, so that a misfit is one clear line.

JAX answers a second process of one number, or another number of processes, by
a stack of C++ after a minute. Here process 0 listens at the coordinator's
address until all have said who they are, and tells all what does not fit.
"""

import json
import select
import socket
import time

from train.host.files import Json

_PAUSE_SECONDS = 0.2  # between tries to reach process 0
_ANSWER_SECONDS = 10.0  # for what reached it to say who it is
_GRACE_SECONDS = 2.0  # for latecomers to hear what does not fit
_STRANGE_ANSWERS = 3  # of what listens there, that end the tries


def meet(
  coordinator: str, num_processes: int, process_id: int, seconds: float
) -> None:
  """Returns when all processes have met.

  `coordinator` is HOST:PORT of process 0. Raises ValueError on all of them if
  they do not fit together, TimeoutError after `seconds`.
  """
  host, port = split(coordinator)
  end = time.monotonic() + seconds
  if process_id == 0:
    _receive(coordinator, port, num_processes, end, seconds)
  else:
    _report(coordinator, host, port, (process_id, num_processes), end, seconds)


def split(coordinator: str) -> tuple[str, int]:
  """Returns (host, port) of an address; ValueError for another text."""
  host, _, port = coordinator.rpartition(':')
  if not host or not port.isdecimal() or not 0 < int(port) < 65536:
    raise ValueError(
      f'--coordinator={coordinator}: expected HOST:PORT of process 0, a port'
      ' from 1 to 65535'
    )
  return host.strip('[]'), int(port)


def _late(
  coordinator: str, process: int, seconds: float, num_processes: int, who: str
) -> TimeoutError:
  return TimeoutError(
    f'process {process} waited {seconds:g} s at {coordinator} for all of its'
    f' {num_processes} processes: {who} did not come, or cannot reach that'
    ' address. Start them all, with the same --coordinator'
  )


def _receive(
  coordinator: str, port: int, num_processes: int, end: float, seconds: float
) -> None:
  """Waits, as process 0, for all others, and answers them."""
  both = socket.has_dualstack_ipv6()
  try:
    server = socket.create_server(
      ('', port),
      family=socket.AF_INET6 if both else socket.AF_INET,
      dualstack_ipv6=both,
      backlog=max(num_processes, 128),
    )
  except OSError as error:
    raise ValueError(
      f'--coordinator={coordinator}: port {port} of this machine cannot be used'
      f' ({error.strerror}): name a free one, the same for all processes'
    ) from None
  visitors: list[socket.socket] = []
  arrived: set[int] = set()
  problem = ''
  with server:
    while len(visitors) < num_processes - 1:
      server.settimeout(max(end - time.monotonic(), 0.001))
      try:
        visitor, _ = server.accept()
      except TimeoutError:
        break
      said = _read(visitor, _ANSWER_SECONDS)
      if not isinstance(said, list) or len(said) != 2:
        visitor.close()  # no process of ours
        continue
      visitors.append(visitor)
      if not problem and (misfit := _misfit(said, num_processes, arrived)):
        problem = f'--coordinator={coordinator}: {misfit}'
        # Those that are still to come are told, too.
        end = min(end, time.monotonic() + _GRACE_SECONDS)
      arrived.add(said[0])
    late = None
    if not problem and len(visitors) < num_processes - 1:
      missing = [i for i in range(1, num_processes) if i not in arrived]
      who = ', '.join(map(str, missing[:8])) + ', ...' * (len(missing) > 8)
      late = _late(coordinator, 0, seconds, num_processes, f'process {who}')
    _answer(visitors, problem or str(late or ''))
  if problem:
    raise ValueError(problem)
  if late:
    raise late


def _misfit(said: list, num_processes: int, arrived: set[int]) -> str:
  process, count = said
  if count != num_processes:
    return (
      f'process {process} was started with --num_processes={count}, process 0'
      f' with --num_processes={num_processes}: give all the same'
    )
  if process in arrived:
    return (
      f'two processes were started with --process_id={process}: give each its'
      f' own, from 0 to {num_processes - 1}'
    )
  return ''


def _answer(visitors: list[socket.socket], problem: str) -> None:
  """Tells all; each closes first, so that the port is free for JAX."""
  for visitor in visitors:
    try:
      visitor.sendall(json.dumps({'problem': problem}).encode() + b'\n')
    except OSError:
      pass  # it died, which JAX will tell
  for visitor in visitors:
    with visitor:
      select.select([visitor], [], [], 1.0)


def _report(
  coordinator: str,
  host: str,
  port: int,
  said: tuple[int, int],
  end: float,
  seconds: float,
) -> None:
  """Tells process 0 who is here, and waits for its answer."""
  strange = 0
  while time.monotonic() < end:
    try:
      with socket.create_connection(
        (host, port), timeout=_ANSWER_SECONDS
      ) as to:
        to.sendall(json.dumps(said).encode() + b'\n')
        answer = _read(to, max(end - time.monotonic(), 0) + _GRACE_SECONDS)
    except OSError:
      time.sleep(_PAUSE_SECONDS)  # it is not there yet
      continue
    if isinstance(answer, dict) and 'problem' in answer:
      if answer['problem']:
        raise ValueError(answer['problem'])
      return
    if time.monotonic() < end:
      strange += 1
      time.sleep(_PAUSE_SECONDS)
    if strange == _STRANGE_ANSWERS:
      raise ValueError(
        f'--coordinator={coordinator}: what listens there does not wait for'
        f' process {said[0]}: another program, or a run whose processes have'
        ' all met, one of them with this --process_id. Name a free port, the'
        ' same for all processes, and give each its own number'
      )
  raise _late(coordinator, said[0], seconds, said[1], 'process 0 or another')


def _read(connection: socket.socket, seconds: float) -> Json:
  """Returns the JSON of one line; None if no line comes in time."""
  connection.settimeout(seconds)
  data = b''
  try:
    while not data.endswith(b'\n') and len(data) < 10_000:
      more = connection.recv(1000)
      if not more:
        return None
      data += more
    return json.loads(data)
  except (OSError, ValueError):
    return None
