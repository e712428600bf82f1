"""The command of a fine-tuning, as a user types it."""

import launch

# Seconds; far more than a command takes.
WAIT = 240


def command(module, *arguments):
  """Returns a finished command: its output and its messages."""
  return launch.run(
    ['-m', module, *map(str, arguments)], launch.environment(), timeout=WAIT
  )
