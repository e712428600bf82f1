"""Standard error that takes no more lines ends no work."""

import os
import sys
from typing import Any


class SteadyErrors:
  """A context in which lines that standard error cannot take end nothing.

  Its disk may be full, its reader gone, or it was closed from the beginning. A
  run goes on, and says in its results how many writes were lost.

  Attributes:
    lost: writes that failed.
    problem: the last failure.
  """

  lost, problem = 0, ''

  def __enter__(self) -> 'SteadyErrors':
    for number in (0, 1, 2):  # else the next file gets it, and C++ writes there
      try:
        os.fstat(number)
      except OSError:
        os.open(os.devnull, os.O_RDWR)
    self._stream = sys.stderr
    sys.stderr = self
    return self

  def __exit__(self, *error: Any) -> None:
    if sys.stderr is self:
      sys.stderr = self._stream

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)

  def write(self, text: str) -> int:
    """Writes what can be written."""
    try:
      if self._stream is None:
        raise OSError('it was closed when the program began')
      self._stream.write(text)
      self._stream.flush()
    except (OSError, ValueError) as error:  # ValueError: closed since
      SteadyErrors.lost += 1
      SteadyErrors.problem = str(error)
    return len(text)

  def flush(self) -> None:
    """Does nothing: all is written at once."""

  def isatty(self) -> bool:
    """Returns whether a person looks."""
    return self._stream is not None and self._stream.isatty()

  @classmethod
  def facts(cls) -> dict[str, dict[str, int | str]]:
    """Returns what was lost, for results.json; {} if nothing was."""
    if not cls.lost:
      return {}
    return {'stderr': {'lost_writes': cls.lost, 'problem': cls.problem}}
