"""Starts and ends the processes of one run."""

import os
import socket
import subprocess
import sys


def free_port() -> int:
  """Returns a port that nothing listens at."""
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


def start(arguments_of, num_processes, devices):
  """Starts the processes of one run.

  Args:
    arguments_of: (coordinator, process) -> the arguments of Python.
    num_processes: how many.
    devices: of each.
  """
  environment = os.environ | {
    'XLA_FLAGS': f'--xla_force_host_platform_device_count={devices}'
  }
  coordinator = f'localhost:{free_port()}'
  return [
    subprocess.Popen(
      [sys.executable, *arguments_of(coordinator, i)],
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for i in range(num_processes)
  ]


def end(children, timeout=240):
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
