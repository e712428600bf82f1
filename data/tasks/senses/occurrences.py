"""A word in its sentence."""

from typing import NamedTuple


class Occurrence(NamedTuple):
  """A word in its sentence.

  Attributes:
    where: file and line, for messages.
    words: the whole sentence.
    place: number of the word in the sentence, from 0.
  """

  where: str
  words: tuple[str, ...]
  place: int
