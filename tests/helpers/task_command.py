"""The command of a fine-tuning, as a user types it."""

import subprocess
import sys

from launch import environment

# Seconds; far more than a command takes.
WAIT = 240


def command(module, *arguments):
  """Returns a finished command: its output and its messages."""
  return subprocess.run(
    [sys.executable, '-m', module, *map(str, arguments)],
    env=environment(),
    capture_output=True,
    text=True,
    timeout=WAIT,
  )
