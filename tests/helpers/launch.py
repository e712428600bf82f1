"""Starts and ends programs of processes of their own.

To import JAX and TensorFlow takes longer than most programs of tests run. So
programs are forked from one process that has imported them, by
multiprocessing's fork server; what a whole start does is tested where a test
calls `subprocess` itself.
"""

import atexit
import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import pathlib
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping, Sequence

_COUNT = '--xla_force_host_platform_device_count'
# They start no thread that a fork would lose.
_LIBRARIES = ['jax', 'flax.linen', 'optax', 'orbax.checkpoint', 'tensorflow']
_FORKS = multiprocessing.get_context('forkserver')


def free_port() -> int:
  """Returns a port that nothing listens at."""
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


def environment(devices=1):
  """Returns the environment of a child that sees so many devices."""
  flags = re.sub(f'{_COUNT}=\\d+', '', os.environ.get('XLA_FLAGS', ''))
  path = [str(pathlib.Path(__file__).parent / 'children')]
  path += filter(None, [os.environ.get('PYTHONPATH')])
  return os.environ | {
    'XLA_FLAGS': f'{flags} {_COUNT}={devices}',
    'PYTHONPATH': os.pathsep.join(path),
  }


class Program:
  """A program that was started, with what tests ask of `subprocess.Popen`.

  Attributes:
    pid: its process.
  """

  def __init__(
    self,
    arguments: Sequence[str],
    variables: dict[str, str],
    folder: str | os.PathLike = '.',
    output: str | os.PathLike | None = None,
    errors: str | os.PathLike | None = None,
  ):
    """Starts it.

    Args:
      arguments: as of Python: -c CODE, -m MODULE or FILE, and its own.
      variables: its environment, in which JAX's are those of this process.
      folder: where it runs.
      output: the file that its standard output is added to; None: one that
        `communicate` reads.
      errors: the same for standard error.
    """
    pages = _large_pages()
    _start_server(pages)
    self._written = [output, errors]
    self._files = []
    for i, path in enumerate(self._written):
      if path is None:
        self._files.append(tempfile.NamedTemporaryFile(mode='r'))
        self._written[i] = self._files[-1].name
    self._process = _FORKS.Process(
      target=_run,
      args=(
        list(map(str, arguments)),
        pages | variables,
        os.path.abspath(folder),
        [os.path.abspath(path) for path in self._written],
      ),
    )
    self._process.start()
    self.pid = self._process.pid

  @property
  def returncode(self) -> int | None:
    """The exit code, of a process that a signal ended its negative number."""
    return self._process.exitcode

  def poll(self) -> int | None:
    """Returns the exit code, None while it runs."""
    return self._process.exitcode

  def wait(self, timeout: float | None = None) -> int:
    """Returns the exit code, once there is one."""
    self._process.join(timeout)
    if self.returncode is None:
      raise subprocess.TimeoutExpired(str(self.pid), timeout)
    return self.returncode

  def communicate(self, timeout: float | None = None) -> tuple[str, str]:
    """Waits for the end; returns standard output and error."""
    self.wait(timeout)
    return tuple(pathlib.Path(path).read_text() for path in self._written)

  def send_signal(self, number: int) -> None:
    """Sends a signal to a process that has not ended."""
    if self.returncode is None:
      os.kill(self.pid, number)

  def kill(self) -> None:
    """Ends it at once."""
    self.send_signal(signal.SIGKILL)


def _large_pages() -> dict[str, str]:
  """Returns what commands start anew with where they do not find it."""
  from train.host import huge_pages  # not in the process that is forked

  return {huge_pages.VARIABLE: huge_pages.VALUE}


def _start_server(pages: Mapping[str, str]) -> None:
  """Starts the process that has the libraries, if it does not run."""
  _FORKS.set_forkserver_preload(_LIBRARIES)
  before = dict(os.environ)
  os.environ.update(environment() | pages)
  try:
    multiprocessing.forkserver.ensure_running()
  finally:
    os.environ.clear()
    os.environ.update(before)


def _run(
  arguments: list[str],
  variables: dict[str, str],
  folder: str,
  written: list[str],
) -> None:
  """Is the program, in a process of its own."""
  for number, path in enumerate(written, start=1):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, number)
    os.close(file)
  code = 1
  try:
    for name in sorted(os.environ.keys() | variables.keys()):
      before, now = os.environ.get(name), variables.get(name)
      if name.startswith('JAX_') and now != before:
        raise ValueError(f'JAX has read {name}={before}: call subprocess')
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    os.chdir(folder)
    code = _execute(arguments)
    threading._shutdown()  # waits for threads, as an interpreter's end does
    atexit._run_exitfuncs()
  except BaseException:
    traceback.print_exc()
  with contextlib.suppress(OSError):
    sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def _execute(arguments: list[str]) -> int:
  """Executes what Python is given; returns the exit code."""
  what, *rest = arguments
  try:
    if what == '-c':
      code, *rest = rest
      sys.argv, sys.path[:0] = ['-c', *rest], ['']
      main = sys.modules['__main__'] = types.ModuleType('__main__')
      exec(compile(code, '<string>', 'exec'), main.__dict__)
    elif what == '-m':
      module, *rest = rest
      sys.argv, sys.path[:0] = [module, *rest], [os.getcwd()]
      runpy.run_module(module, run_name='__main__', alter_sys=True)
    else:
      sys.argv, sys.path[:0] = [what, *rest], [os.path.dirname(what)]
      runpy.run_path(what, run_name='__main__')
  except SystemExit as end:
    if isinstance(end.code, str):
      print(end.code, file=sys.stderr)
    return end.code if isinstance(end.code, int) else int(bool(end.code))
  except BaseException:
    traceback.print_exc()
    return 1
  return 0


def start(arguments_of, num_processes, devices):
  """Starts the processes of one run.

  Args:
    arguments_of: (coordinator, process) -> the arguments of Python.
    num_processes: how many.
    devices: of each.
  """
  coordinator = f'localhost:{free_port()}'
  # JAX would warn of the machine's proxies.
  variables = {
    name: value
    for name, value in environment(devices).items()
    if '_proxy' not in name.lower()
  }
  return [
    Program(arguments_of(coordinator, i), variables)
    for i in range(num_processes)
  ]


def end(children, timeout=400):
  """Waits for them; returns (exit code, standard output, error) of each."""
  try:
    return [
      (child.returncode, *output)
      for child in children
      for output in [child.communicate(timeout=timeout)]
    ]
  finally:
    for child in children:
      child.kill()
      child.wait()


def run(arguments, variables, folder='.', timeout=400):
  """Returns a program that has ended, as `subprocess.run` does."""
  program = Program(arguments, variables, folder)
  try:
    output, errors = program.communicate(timeout)
  finally:
    program.kill()
    program.wait()
  return subprocess.CompletedProcess(
    arguments, program.returncode, output, errors
  )
