"""Probing tasks of a user's own, in the JSON lines of edge probing.

A line is {"text": "Ann ate figs", "targets": [{"span1": [1, 2], "span2":
[0, 1], "label": "ARG0"}]}: words with spaces between them, one span or two of
each target as [first word, word after the last], a label or a list of them,
which may be empty. Other fields are skipped.
"""

import re
from collections.abc import Sequence
from typing import Any

from etils import epath

from data.tasks import files
from data.tasks.probes import targets
from data.tasks.probes.targets import Probe, Sentence, Target

# Word pieces of BERT; and of GPT-2, SentencePiece and GPT, most of which have a
# mark. Such files exist for single encoders; but a word can look alike, as the
# Maltese name Ġorġ. BERT's uncased pieces of the English Web Treebank have a ##
# in 42 % of the sentences, and in 26 % of those of up to 3 words.
_CONTINUED = re.compile(r'##\w+|\[CLS\]|\[SEP\]')
_MARKED = re.compile(r'[ĠĊ▁]\S*|\S+</w>')
_LEAST_CUT, _LEAST_SHARE = 3, 0.1  # sentences of a file that is refused
_SPLITS = {
  split: tuple(f'{name}.{end}' for name in names for end in ('jsonl', 'json'))
  for split, names in (
    ('train', ('train',)),
    ('dev', ('dev', 'development', 'val')),
    ('test', ('test',)),
  )
}


def find(name: str, source: str) -> Probe | None:
  """Returns the task of the folder `name` in a folder; None without one.

  Its training file is read: if all labels are '0' and '1', the task asks
  whether something is so, as coreference, and '1' alone is scored.
  """
  names = {
    split: tuple(f'{name}/{file}' for file in possible)
    for split, possible in _SPLITS.items()
  }
  file = files.find(source, (), names['train'])
  if file is None:
    return None
  num_spans, labels = 0, set()
  for _, sentence in _rows(file, 'train'):
    for target in sentence.targets:
      num_spans = num_spans or len(target.spans)
      labels.update(target.labels)
  if not num_spans:
    raise ValueError(f'{file}: found no target, expected a file of "targets"')
  is_yes_no = labels == {'0', '1'}
  return Probe(
    name=name,
    title=name,
    num_spans=num_spans,
    rows=_rows,
    files=names,
    corpus=f'own/{name}',
    is_scored=lambda label: not (is_yes_no and label == '0'),
  )


def _rows(file: epath.Path, split: str) -> targets.Found:
  del split
  total, cut = 0, []
  for where, record in files.read_jsonl(file, ('targets',), ('text',)):
    words = tuple(record['text'].split())
    total += 1
    if _looks_cut(words):
      cut.append(where)
    if not isinstance(record['targets'], list):
      raise ValueError(
        f'{where}: found {str(record["targets"])[:60]!r} as targets, expected'
        ' a list'
      )
    found = tuple(_target(where, each) for each in record['targets'])
    yield where, Sentence(words, found)
  if len(cut) >= max(_LEAST_CUT, _LEAST_SHARE * total):
    raise ValueError(
      f'{cut[0]}: found word pieces here and in other sentences,'
      f' {len(cut):,} of {total:,}, expected whole words: the file is cut into'
      " an encoder's tokens, and here the spans of words are projected on the"
      ' tokens of each encoder'
    )


def _looks_cut(words: Sequence[str]) -> bool:
  """Returns whether a sentence's words look like pieces of words."""
  marked = sum(bool(_MARKED.fullmatch(word)) for word in words)
  return 2 * marked > len(words) or any(map(_CONTINUED.fullmatch, words))


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
