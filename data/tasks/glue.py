"""GLUE's tasks (Wang et al. 2018) in the release's tab-separated files."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from data.tasks import examples, files

_PARENTS = ('glue', 'GLUE', 'glue_data')
TFDS_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
# The order in which TFDS numbers the three classes.
TFDS_NLI = ('entailment', 'neutral', 'contradiction')


def rows(
  file: epath.Path,
  split: str,
  *,
  texts: Sequence[str] = ('sentence1', 'sentence2'),
  label: str = 'label',
  index: Sequence[str] = ('index',),
  to_label: Callable[[str, Any], Any] | None = None,
  group: str = '',
  open_end: bool = False,
  drop_short: bool = False,
) -> examples.Found:
  """Returns (place, example) of each row of a tab-separated file with titles.

  See `text_examples` and `files.read_tsv`. Short rows are dropped only where
  labels are required: elsewhere every row needs a prediction.
  """
  labelled = examples.needs_labels(split)
  table = files.read_tsv(
    file,
    (*texts, label) if labelled else texts,
    optional=(label, *index),
    open_end=open_end,
    drop_short=drop_short and labelled,
  )
  return text_examples(table, texts, label, index, to_label, group)


def text_examples(
  records: files.Records,
  texts: Sequence[str],
  label: str,
  index: Sequence[str] = (),
  to_label: Callable[[str, Any], Any] | None = None,
  group: str = '',
) -> examples.Found:
  """Yields (place, example) of each (place, record).

  `texts` and `label` are fields; `index` possible fields of the id, see
  `files.id_of`; `to_label` is (place, value) -> label.
  """
  for number, (where, record) in enumerate(records):
    value = record.get(label)
    if to_label is not None and value is not None:
      value = to_label(where, value)
    key = files.id_of(record, number, index)
    words = tuple(record[field] for field in texts)
    yield where, examples.TextExample(key, words, value, group)


def score_of(where: str, text: Any) -> float:
  """Returns a score, or raises ValueError at text that is no finite number."""
  try:
    score = math.nan if isinstance(text, bool) else float(text)
  except (TypeError, ValueError, OverflowError):
    score = math.nan
  if not math.isfinite(score):
    raise ValueError(f'{where}: found the score {text!r}, expected a number')
  return score


def _cola_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads CoLA: four columns without titles, but for the test file."""
  if 'sentence' in files.header_of(file):
    return rows(file, split, texts=('sentence',))
  titles = ('source', 'label', 'mark of the author', 'sentence')
  table = files.read_tsv(file, (), titles=titles)
  return text_examples(table, ('sentence',), 'label')


def _mrpc_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads MRPC: GLUE's files, or Microsoft's and the ids of GLUE's dev set."""
  texts = ('#1 String', '#2 String')
  found = rows(file, split, texts=texts, label='Quality')
  if file.name != 'msr_paraphrase_train.txt':
    yield from found
    return
  # GLUE took its dev set out of Microsoft's training set.
  of_dev = file.parent / 'dev_ids.tsv'
  if not of_dev.exists():
    raise ValueError(
      f"{file}: holds GLUE's training and dev examples together; expected "
      f'train.tsv and dev.tsv, or beside it {of_dev.name} with the pairs of '
      'the dev set (mrpc_dev_ids.tsv of GLUE)'
    )
  ids = ('#1 ID', '#2 ID')
  dev = {
    tuple(pair.values()) for _, pair in files.read_tsv(of_dev, (), titles=ids)
  }
  for (_, row), example in zip(files.read_tsv(file, ids), found, strict=True):
    if ((row[ids[0]], row[ids[1]]) in dev) == (split == 'dev'):
      yield example


def _mnli_rows(file: epath.Path, split: str) -> examples.Found:
  """Reads MNLI: GLUE's files, MultiNLI's own, and the diagnostic set."""
  if 'Premise' in files.header_of(file):  # diagnostic-full.tsv
    return rows(file, split, texts=('Premise', 'Hypothesis'), label='Label')
  found = rows(
    file,
    split,
    label='gold_label',
    index=('index', 'pairID'),
    open_end=True,  # rows have one to five annotators' labels
  )
  return with_majority(file, found)


def with_majority(file: epath.Path, found: examples.Found) -> examples.Found:
  """Drops and counts pairs without a majority ('-'), as Bowman et al. 2015."""
  dropped = 0
  for where, example in found:
    if example.label == '-':
      dropped += 1
    else:
      yield where, example
  if dropped:
    files.note(f'{file}: {dropped:,} pairs without a majority label dropped')


def text_record(
  record: Mapping[str, Any],
  split: str,
  number: int,
  *,
  texts: Sequence[str] = ('sentence1', 'sentence2'),
  labels: Sequence[str] = (),
) -> examples.TextExample:
  """Returns the example of a TFDS record; a label of -1 means unknown.

  `labels` are in TFDS's order; without labels the examples have scores.
  """
  del split
  label = record.get('label', -1)
  known = None
  if label >= 0:
    known = labels[int(label)] if labels else float(label)
  return examples.TextExample(
    id=str(record.get('idx', number)),
    texts=tuple(record[text] for text in texts),
    label=known,
  )


def _glue(
  name: str,
  title: str,
  *,
  sizes: tuple[int, int, int],
  texts: Sequence[str] = ('sentence1', 'sentence2'),
  labels: Sequence[str] = (),
  folders: Sequence[str] = (),
  more_sizes: Mapping[str, int] | None = None,
  **declaration: Any,
) -> examples.Task:
  """Declares a task of GLUE; `sizes` are of train, dev and test."""
  folders = folders or (title,)
  fields = {
    'kind': 'classification',
    'rows': functools.partial(rows, texts=texts),
    'files': {split: (f'{split}.tsv',) for split in ('train', 'dev', 'test')},
    'tfds': examples.Tfds(
      f'glue/{name}',
      functools.partial(text_record, texts=texts, labels=labels),
      TFDS_SPLITS,
    ),
  }
  return examples.TextTask(
    name=name,
    title=title,
    folders=(
      *folders,
      *(f'{parent}/{folder}' for parent in _PARENTS for folder in folders),
    ),
    labels=labels,
    num_texts=len(texts),
    sizes=dict(zip(('train', 'dev', 'test'), sizes, strict=True))
    | dict(more_sizes or {}),
    submission='glue',
    url='https://gluebenchmark.com/tasks',
    **(fields | declaration),
  )


_BINARY = ('0', '1')
_ENTAILMENT = ('entailment', 'not_entailment')
_MNLI_FILES = {
  'train': ('train.tsv', 'multinli_1.0_train.txt'),
  'dev': ('dev_matched.tsv', 'multinli_1.0_dev_matched.txt'),
  'dev_mismatched': ('dev_mismatched.tsv', 'multinli_1.0_dev_mismatched.txt'),
  'test': ('test_matched.tsv',),
  'test_mismatched': ('test_mismatched.tsv',),
  'diagnostic': tuple(
    f'{folder}{name}'
    for folder in ('', 'diagnostic/', '../diagnostic/', 'glue/diagnostic/')
    for name in ('diagnostic.tsv', 'diagnostic-full.tsv')
  ),
}
_MNLI_TFDS_SPLITS = {
  'train': 'train',
  'dev': 'validation_matched',
  'dev_mismatched': 'validation_mismatched',
  'test': 'test_matched',
  'test_mismatched': 'test_mismatched',
  'diagnostic': 'glue/ax:test',
}
COLA = _glue(
  'cola',
  'CoLA',
  sizes=(8551, 1043, 1063),
  rows=_cola_rows,
  texts=('sentence',),
  labels=_BINARY,
  metrics=('matthews',),
)
SST2 = _glue(
  'sst2',
  'SST-2',
  sizes=(67349, 872, 1821),
  folders=('SST-2', 'SST2'),
  texts=('sentence',),
  labels=_BINARY,
  recipe=examples.SPACES,
)
MRPC = _glue(
  'mrpc',
  'MRPC',
  sizes=(3668, 408, 1725),
  rows=_mrpc_rows,
  files={
    'train': ('train.tsv', 'msr_paraphrase_train.txt'),
    'dev': ('dev.tsv', 'msr_paraphrase_train.txt'),
    # The same pairs in the same order; Microsoft's file has labels.
    'test': ('msr_paraphrase_test.txt', 'test.tsv'),
  },
  symmetric=True,
  labels=_BINARY,
  metrics=('f1', 'accuracy'),
)
STSB = _glue(
  'stsb',
  'STS-B',
  sizes=(5749, 1500, 1379),
  rows=functools.partial(rows, label='score', to_label=score_of),
  folders=('STS-B', 'STSB'),
  kind='regression',
  symmetric=True,
  score_range=(0.0, 5.0),
  metrics=('spearman', 'pearson'),
  # Scores 0 to 5: openai/finetune-transformer-lm, utils.py.
  recipe={'gpt': {'task.soft_classes': 6}},
)
_QUESTIONS = ('question1', 'question2')
QQP = _glue(
  'qqp',
  'QQP',
  sizes=(363846, 40430, 390965),
  rows=functools.partial(
    rows, texts=_QUESTIONS, label='is_duplicate', index=('id',), drop_short=True
  ),
  allow_empty=True,  # some questions, and sentences of MNLI, are empty
  texts=_QUESTIONS,
  symmetric=True,
  labels=_BINARY,
  metrics=('f1', 'accuracy'),
)
MNLI = _glue(
  'mnli',
  'MNLI',
  sizes=(392702, 9815, 9796),
  more_sizes={
    'dev_mismatched': 9832,
    'test_mismatched': 9847,
    'diagnostic': 1104,
  },
  rows=_mnli_rows,
  allow_empty=True,
  files=_MNLI_FILES,
  labels=('contradiction', 'entailment', 'neutral'),
  tfds=examples.Tfds(
    'glue/mnli',
    functools.partial(
      text_record, texts=('premise', 'hypothesis'), labels=TFDS_NLI
    ),
    _MNLI_TFDS_SPLITS,
  ),
)
QNLI = _glue(
  'qnli',
  'QNLI',
  sizes=(104743, 5463, 5463),
  texts=('question', 'sentence'),
  labels=_ENTAILMENT,
)
RTE = _glue('rte', 'RTE', sizes=(2490, 277, 3000), labels=_ENTAILMENT)
WNLI = _glue('wnli', 'WNLI', sizes=(635, 71, 146), labels=_BINARY)

TASKS = (COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI)
