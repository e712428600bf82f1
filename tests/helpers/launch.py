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
  """Returns the environment of a child that sees so many devices.

  The machine's proxies are none of it: processes of one run talk to each other,
  and JAX would warn of each.
  """
  flags = re.sub(f'{_COUNT}=\\d+', '', os.environ.get('XLA_FLAGS', ''))
  path = [str(pathlib.Path(__file__).parent / 'children')]
  path += filter(None, [os.environ.get('PYTHONPATH')])
  direct = {k: v for k, v in os.environ.items() if '_proxy' not in k.lower()}
  return direct | {
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
  return [
    subprocess.Popen(
      [sys.executable, *arguments_of(coordinator, i)],
      env=environment(devices),
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
