"""Questions of analogies, as questions-words.txt of word2vec has them.

A line `: NAME` begins a section; each line below it has four words, as in
Athens Greece Oslo Norway: the first is to the second as the third is to the
fourth, which is to be found (Mikolov et al. 2013).
"""

from typing import NamedTuple

from etils import epath

from data.tasks import files

# The names of the sections of grammar begin so, gram1-adjective-to-adverb to
# gram9-plural-verbs; word2vec's program counts the first five as the others.
SYNTACTIC = 'gram'


class Section(NamedTuple):
  """The questions of one kind, each of four words, as they are written."""

  name: str
  questions: tuple[tuple[str, str, str, str], ...]

  @property
  def is_syntactic(self) -> bool:
    """Whether the questions are of grammar, and not of meaning."""
    return self.name.startswith(SYNTACTIC)


def read(path: epath.PathLike) -> list[Section]:
  """Returns the sections of a file, in its order; empty ones are left out.

  Raises FileNotFoundError, and ValueError, with file and line, at a line of
  another number of words, a question before the first section, a section
  without a name or with one that was there, and if there is no question.
  """
  path = epath.Path(path).expanduser()
  found: dict[str, list[tuple[str, ...]]] = {}
  questions = None
  for number, line in files.read_lines(path):
    words = line.split()
    where = f'{path}, line {number:,}'
    if not words:
      continue
    if line.lstrip().startswith(':'):
      name = line.strip()[1:].strip()
      if not name or name in found:
        raise ValueError(
          f'{where}: found the section {line.strip()!r}'
          f'{" again" if name else ""}, expected a colon and a name of its own'
        )
      questions = found[name] = []
      continue
    if len(words) != 4:
      raise ValueError(
        f'{where}: found {len(words)} words, expected 4, as in Athens Greece'
        f' Oslo Norway: {line[:60]!r}'
      )
    if questions is None:
      raise ValueError(
        f'{where}: found a question, {line[:60]!r}, before any section;'
        ' expected a line with a colon and a name above it, as in : family'
      )
    questions.append(tuple(words))
  sections = [
    Section(name, tuple(each)) for name, each in found.items() if each
  ]
  if not sections:
    raise ValueError(f'{path}: found no question, expected four words a line')
  return sections
