"""Probing tasks of a user's own, in the JSON lines of edge probing.

A line is {"text": "Ann ate figs", "targets": [{"span1": [1, 2], "span2":
[0, 1], "label": "ARG0"}]}: words with spaces between them, one span or two of
each target as [first word, word after the last], a label or a list of them.
Other fields are skipped.
"""

import re
from typing import Any

from etils import epath

from data.tasks import files
from data.tasks.probes import targets
from data.tasks.probes.targets import Probe, Sentence, Target

# Word pieces of BERT, GPT-2 and GPT; such files exist for single encoders.
_PIECE = re.compile(r'##\S+|[ĠĊ]\S*|\S+</w>|\[CLS\]|\[SEP\]')
_SPLITS = {
  split: tuple(f'{name}.{end}' for name in names for end in ('jsonl', 'json'))
  for split, names in (
    ('train', ('train',)),
    ('dev', ('dev', 'development', 'val')),
    ('test', ('test',)),
  )
}


def find(name: str, source: str) -> Probe | None:
  """Returns the task of the folder `name` in a folder; None without one."""
  folder = epath.Path(source).expanduser() / name
  found = [folder / file for file in _SPLITS['train']]
  found = [file for file in found if file.exists()]
  if not found:
    return None
  return Probe(
    name=name,
    title=name,
    num_spans=_num_spans(found[0]),
    rows=_rows,
    files=_SPLITS,
    folders=(name,),
    corpus=name,
    # Of coreference and kin, where '0' says that there is no relation.
    is_scored=lambda label: label != '0',
  )


def _num_spans(file: epath.Path) -> int:
  """Returns the number of spans of a file's first target."""
  for _, sentence in _rows(file, 'train'):
    for target in sentence.targets:
      return len(target.spans)
  raise ValueError(f'{file}: found no target, expected a file of "targets"')


def _rows(file: epath.Path, split: str) -> targets.Found:
  del split
  for where, record in files.read_jsonl(file, ('targets',), ('text',)):
    words = tuple(record['text'].split())
    pieces = [word for word in words if _PIECE.fullmatch(word)]
    if pieces:
      raise ValueError(
        f'{where}: found the word piece {pieces[0]!r}, expected whole words:'
        " the file is cut into an encoder's tokens, and here the spans of words"
        ' are projected on the tokens of each encoder'
      )
    if not isinstance(record['targets'], list):
      raise ValueError(
        f'{where}: found {str(record["targets"])[:60]!r} as targets, expected'
        ' a list'
      )
    found = tuple(_target(where, each) for each in record['targets'])
    yield where, Sentence(words, found)


def _target(where: str, record: Any) -> Target:
  files.check_fields(where, record, ('span1', 'label'))
  labels = record['label']
  labels = labels if isinstance(labels, list) else [labels]
  wrong = [label for label in labels if not isinstance(label, str | int)]
  if wrong:
    raise ValueError(
      f'{where}: found the label {str(wrong[0])[:60]}, expected text, or a list'
      ' of texts'
    )
  spans = [record['span1']]
  if record.get('span2') is not None:
    spans.append(record['span2'])
  for span in spans:
    is_pair = isinstance(span, list) and [type(x) for x in span] == [int, int]
    if not is_pair:
      raise ValueError(
        f'{where}: found the span {str(span)[:60]}, expected [first word, word'
        ' after the last]'
      )
  return Target(tuple(map(tuple, spans)), tuple(map(str, labels)))
