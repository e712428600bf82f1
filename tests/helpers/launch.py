"""Starts and ends the processes of one run."""

import os
import pathlib
import re
import socket
import subprocess
import sys

_COUNT = '--xla_force_host_platform_device_count'


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
    subprocess.Popen(
      [sys.executable, *arguments_of(coordinator, i)],
      env=variables,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
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
