"""The noun *interest* in six senses (Bruce and Wiebe 1994), Senseval-2's form.

The file interest.pos is XML: an `instance` has an `answer` with its `senseid`,
and a `context` of words, `wf`, one of them in a `head`.
"""

from typing import NamedTuple
from xml.etree import ElementTree

from etils import epath

from data.tasks import files
from data.tasks.senses.occurrences import Occurrence
from data.text import text_files

FILE = 'interest.pos'
SIZE = 2368  # sentences, in six senses


class Sense(NamedTuple):
  """The word in a sentence, and the name of its sense there."""

  found: Occurrence
  sense: str


def read(folder: epath.PathLike) -> list[Sense]:
  """Returns the sentences of interest.pos in a folder, in their order.

  Raises FileNotFoundError if there is no such file; ValueError, with the file
  and the id of the instance, if it is not of this form.
  """
  root = epath.Path(folder).expanduser()
  file = root / FILE
  if not file.exists():
    raise FileNotFoundError(
      f'{root}: found no {FILE}, expected the file of the Senseval-2 corpus, as'
      f' NLTK has it. {files.contents(root)}'
    )
  try:
    tree = ElementTree.fromstring(text_files.read_text(file))
  except ElementTree.ParseError as error:
    raise ValueError(f'{file}: not XML: {error}') from None
  found = []
  for number, instance in enumerate(tree.iter('instance'), start=1):
    where = f'{file}, instance {instance.get("id", number)}'
    senses = [answer.get('senseid') for answer in instance.iter('answer')]
    if len(senses) != 1 or not senses[0]:
      raise ValueError(f'{where}: found the senses {senses}, expected one')
    words, places = [], []
    for part in instance.iterfind('context/*'):
      new = [(word.text or '').strip() for word in part.iter('wf')]
      if part.tag == 'head':
        places += range(len(words), len(words) + len(new))
      words += new
    if len(places) != 1:
      raise ValueError(
        f'{where}: found {len(places)} of {len(words)} words in a head,'
        ' expected one'
      )
    if not all(words):
      raise ValueError(f'{where}: found an empty word, expected text')
    found.append(Sense(Occurrence(where, tuple(words), places[0]), senses[0]))
  if not found:
    raise ValueError(f'{file}: found no instance, expected sentences')
  if len(found) != SIZE:
    files.note(f'{file}: holds {len(found):,} sentences, the corpus {SIZE:,}')
  return found
