"""Texts whose attention is shown: given by options, or shipped examples."""

from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from train.vectors import text_counts

MOST_TEXTS = 8  # a page for a person, not a corpus


class ShownText(NamedTuple):
  """A text, or a pair of texts that the model reads together.

  Attributes:
    second: the second text of the pair; None without.
    word: the page opens at a token of this word; None: at any token.
    target: and at a head that leads it to this word; None: to any token.
  """

  first: str
  second: str | None = None
  word: str | None = None
  target: str | None = None


# The sentences in which a pronoun of a translation came from the occupation
# alone; and two of WinoBias' kind (Zhao et al. 2018), where one pronoun goes
# with the stereotype of its occupation, and the other against it.
EXAMPLES = {
  'nurse': (
    ShownText('The nurse said she was tired', word='she', target='nurse'),
    ShownText('The doctor said he was tired', word='he', target='doctor'),
  ),
  'bank': (
    ShownText('We ate our lunch on the grassy bank of the river.', word='bank'),
    ShownText('She opened a savings account at the bank.', word='bank'),
    ShownText(
      'The blood bank asked everyone to give before winter.', word='bank'
    ),
    ShownText('You can bank on him to arrive in time.', word='bank'),
    ShownText('A dark bank of clouds rose over the hills.', word='bank'),
  ),
  'winobias': (
    ShownText(
      'The carpenter thanked the librarian because she had found the plans.',
      word='she',
      target='librarian',
    ),
    ShownText(
      'The carpenter thanked the librarian because he had found the plans.',
      word='he',
      target='carpenter',
    ),
  ),
}


def read(path: epath.PathLike) -> list[ShownText]:
  """Reads a file of a text a line.

  Raises an OSError for a missing file; ValueError, with file and line, for a
  blank line, and for an empty file.
  """
  text_counts.count_lines(path)
  texts = [ShownText(line) for line in text_counts.lines(path)]
  for number, text in enumerate(texts, start=1):
    if not text.first.strip():
      raise ValueError(f'{path}, line {number:,}: is blank, expected a text')
  return texts


def choose_figure(**paths: str | None) -> str | None:
  """Returns the name of the option that has a path; None if none has one.

  The options are those of figures; without them the command writes a page.
  Raises ValueError for two paths.
  """
  given = [name for name, path in paths.items() if path is not None]
  if len(given) > 1:
    raise ValueError(
      f'{" and ".join(f"--{name}" for name in given)}: each draws a figure of'
      ' its own, expected one of them'
    )
  return given[0] if given else None


def check_none(
  figure: str,
  example: str | None,
  text: str | None,
  pair: str | None,
  beside: Sequence[str],
  *,
  precise: bool,
) -> None:
  """Checks that the option `figure` comes without options of a page."""
  given = {'example': example, 'text': text, 'pair': pair, 'beside': beside}
  given['precise'] = precise
  if extra := [f'--{name}' for name, value in given.items() if value]:
    raise ValueError(
      f'--{figure} draws a figure of its own sentences: give no'
      f' {", ".join(extra)} with it'
    )


def choose(
  example: str | None,
  text: str | None,
  pair: str | None,
  beside: Sequence[str] | None,
) -> tuple[ShownText, ...]:
  """Returns the texts of the command's options, or of an example.

  Raises ValueError for options that do not go together, an unknown example, a
  text without a letter or sign, and too many texts.
  """
  if example is not None:
    if not (text is None and pair is None and not beside):
      raise ValueError(
        '--example has texts of its own: give no --text, --pair or --beside'
        ' with it'
      )
    if example not in EXAMPLES:
      raise ValueError(
        f'--example={example}: expected one of {", ".join(EXAMPLES)}'
      )
    return EXAMPLES[example]
  if text is None:
    raise ValueError(
      'no text: expected --text, --example, --sentences or --winobias'
    )
  named = [('--text', text), ('--pair', pair)]
  named += [('--beside', other) for other in beside or ()]
  for option, value in named:
    if value is not None and not value.strip():
      raise ValueError(f'{option} is {value!r}, expected a text')
  texts = ShownText(text, pair), *map(ShownText, beside or ())
  if len(texts) > MOST_TEXTS:
    raise ValueError(
      f'--beside: {len(texts)} texts in all, expected {MOST_TEXTS} at most'
    )
  return texts
