"""Commands that are killed end, started again, as the undisturbed ones."""

import killed_commands
import pytest


@pytest.mark.slow
def test_killed_commands_end_alike_and_leave_nothing(tmp_path, seed):
  """`python tests/helpers/train/killed_commands.py` draws many more."""
  commands = killed_commands.small_commands(tmp_path)
  harness = killed_commands.Harness(tmp_path, commands)
  for drawn in killed_commands.draw([*commands], len(commands), seed):
    harness.kill(*drawn)
  assert not [row for row in harness.rows if row[-1]]
