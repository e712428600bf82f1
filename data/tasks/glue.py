"""The tasks of GLUE (Wang et al. 2018) in the release's tab-separated files."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from data.tasks import checks, examples, files

_URL = 'https://gluebenchmark.com/tasks'
_PARENTS = ('glue', 'GLUE', 'glue_data')
# The order in which TFDS numbers the three classes.
TFDS_NLI = ('entailment', 'neutral', 'contradiction')


def rows(
  file: epath.Path,
  split: str,
  *,
  texts: Sequence[str] = ('sentence1', 'sentence2'),
  label: str = 'label',
  index: Sequence[str] = ('index',),
  is_score: bool = False,
  open_end: bool = False,
  drop_short: bool = False,
) -> Iterator[tuple[str, examples.TextExample]]:
  """Yields (place, example) of a file whose first line has titles.

  Args:
    file: tab-separated, without quoting.
    split: those of `checks.is_labelled` must have the label's column.
    texts: titles of the texts.
    label: title of the label.
    index: titles that the id may have; without one, rows are numbered from 0.
    is_score: the label is a number.
    open_end: see `files.read_tsv`.
    drop_short: see there; never where predictions are asked for every row.
  """
  titles = files.header_of(file)
  has_label = label in titles or checks.is_labelled(split)
  key = next((title for title in index if title in titles), None)
  columns = [*texts, *([label] if has_label else []), *([key] if key else [])]
  table = files.read_tsv(
    file,
    columns,
    open_end=open_end,
    drop_short=drop_short and checks.is_labelled(split),
  )
  for number, (line, fields) in enumerate(table):
    where = f'{file}, line {line:,}'
    value: str | float | None = fields[len(texts)] if has_label else None
    if is_score and value is not None:
      value = score_of(where, value)
    yield (
      where,
      examples.TextExample(
        id=fields[-1] if key else str(number),
        texts=tuple(fields[: len(texts)]),
        label=value,
      ),
    )


def score_of(where: str, text: Any) -> float:
  """Returns a score.

  Raises:
    ValueError: if it is no number.
  """
  try:
    if isinstance(text, bool):
      raise TypeError
    return float(text)
  except (TypeError, ValueError):
    raise ValueError(
      f'{where}: found the score {text!r}, expected a number'
    ) from None


def _cola_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """CoLA: four columns without titles, but for the test file."""
  if 'sentence' in files.header_of(file):
    yield from rows(file, split, texts=('sentence',))
    return
  # Source, label, the author's mark, sentence.
  table = files.read_tsv(file, (1, 3), width=4)
  for number, (line, (label, text)) in enumerate(table):
    yield (
      f'{file}, line {line:,}',
      examples.TextExample(str(number), (text,), label),
    )


def _mrpc_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """MRPC: as in GLUE's files, or Microsoft's with GLUE's dev ids beside."""
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
  dev = {tuple(fields) for _, fields in files.read_tsv(of_dev, (0, 1), width=2)}
  pairs = files.read_tsv(file, ('#1 ID', '#2 ID'))
  for (_, pair), example in zip(pairs, found, strict=True):
    if (tuple(pair) in dev) == (split == 'dev'):
      yield example


def _mnli_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TextExample]]:
  """MNLI: GLUE's files, those of MultiNLI itself, and the diagnostic set."""
  if 'Premise' in files.header_of(file):  # diagnostic-full.tsv
    yield from rows(file, split, texts=('Premise', 'Hypothesis'), label='Label')
    return
  found = rows(
    file,
    split,
    label='gold_label',
    index=('index', 'pairID'),
    open_end=True,  # of the five annotators' labels only those that exist
  )
  yield from with_majority(file, found)


def with_majority(
  file: epath.Path, found: checks.Found
) -> Iterator[tuple[str, Any]]:
  """Drops pairs on whose label '-' the annotators did not agree, and counts.

  Bowman et al. 2015 leave them out of training and scoring.
  """
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
  index: str = 'idx',
) -> examples.TextExample:
  """Returns the example of a TFDS record; a label of -1 is not told.

  Args:
    record: of plain values.
    split: unused, as all mappers have it.
    number: of the record.
    texts: features of the texts.
    labels: in TFDS's order; without them the label is a score.
    index: feature of the id; where there is none, the number is it.
  """
  del split
  label = record.get('label', -1)
  if labels:
    known = labels[int(label)] if label >= 0 else None
  else:
    known = float(label) if label >= 0 else None
  return examples.TextExample(
    id=str(record.get(index, number)),
    texts=tuple(record[text] for text in texts),
    label=known,
  )


def _glue(
  name: str,
  *,
  folders: Sequence[str],
  tfds: str,
  texts: Sequence[str] = ('sentence1', 'sentence2'),
  tfds_labels: Sequence[str] = (),
  **declaration: Any,
) -> examples.Task:
  """A task of GLUE: what all of them share."""
  return checks.declare(
    name=name,
    folders=(
      *folders,
      *(f'{parent}/{folder}' for parent in _PARENTS for folder in folders),
    ),
    **{
      'kind': 'classification',
      'files': {split: (f'{split}.tsv',) for split in ('train', 'dev', 'test')},
      'num_texts': len(texts),
      'submission': 'glue',
      'url': _URL,
      'tfds': f'glue/{tfds}',
      'tfds_splits': {'train': 'train', 'dev': 'validation', 'test': 'test'},
      'from_tfds': functools.partial(
        text_record, texts=texts, labels=tuple(tfds_labels)
      ),
      **declaration,
    },
  )


def _sizes(train: int, dev: int, test: int) -> dict[str, int]:
  return {'train': train, 'dev': dev, 'test': test}


_BINARY = ('0', '1')
_ENTAILMENT = ('entailment', 'not_entailment')
COLA = _glue(
  'cola',
  title='CoLA',
  rows=_cola_rows,
  folders=('CoLA',),
  texts=('sentence',),
  labels=_BINARY,
  metrics=('matthews',),
  sizes=_sizes(8551, 1043, 1063),
  tfds='cola',
  tfds_labels=_BINARY,
)
SST2 = _glue(
  'sst2',
  title='SST-2',
  rows=functools.partial(rows, texts=('sentence',)),
  folders=('SST-2', 'SST2'),
  texts=('sentence',),
  labels=_BINARY,
  sizes=_sizes(67349, 872, 1821),
  tfds='sst2',
  tfds_labels=_BINARY,
)
MRPC = _glue(
  'mrpc',
  title='MRPC',
  rows=_mrpc_rows,
  folders=('MRPC',),
  files={
    'train': ('train.tsv', 'msr_paraphrase_train.txt'),
    'dev': ('dev.tsv', 'msr_paraphrase_train.txt'),
    # The same pairs in the same order; Microsoft's tells the labels.
    'test': ('msr_paraphrase_test.txt', 'test.tsv'),
  },
  symmetric=True,
  labels=_BINARY,
  metrics=('f1', 'accuracy'),
  sizes=_sizes(3668, 408, 1725),
  tfds='mrpc',
  tfds_labels=_BINARY,
)
STSB = _glue(
  'stsb',
  title='STS-B',
  rows=functools.partial(rows, label='score', is_score=True),
  folders=('STS-B', 'STSB'),
  kind='regression',
  symmetric=True,
  score_range=(0.0, 5.0),
  metrics=('spearman', 'pearson'),
  sizes=_sizes(5749, 1500, 1379),
  tfds='stsb',
)
QQP = _glue(
  'qqp',
  title='QQP',
  rows=functools.partial(
    rows,
    texts=('question1', 'question2'),
    label='is_duplicate',
    index=('id',),
    drop_short=True,
  ),
  # Some questions, and MNLI's sentences, are empty in the release.
  allow_empty=True,
  folders=('QQP',),
  texts=('question1', 'question2'),
  symmetric=True,
  labels=_BINARY,
  metrics=('f1', 'accuracy'),
  sizes=_sizes(363846, 40430, 390965),
  tfds='qqp',
  tfds_labels=_BINARY,
)
MNLI = _glue(
  'mnli',
  title='MNLI',
  rows=_mnli_rows,
  allow_empty=True,
  folders=('MNLI',),
  files={
    'train': ('train.tsv', 'multinli_1.0_train.txt'),
    'dev': ('dev_matched.tsv', 'multinli_1.0_dev_matched.txt'),
    'dev_mismatched': (
      'dev_mismatched.tsv',
      'multinli_1.0_dev_mismatched.txt',
    ),
    'test': ('test_matched.tsv',),
    'test_mismatched': ('test_mismatched.tsv',),
    'diagnostic': tuple(
      f'{folder}{name}'
      for folder in ('', 'diagnostic/', '../diagnostic/', 'glue/diagnostic/')
      for name in ('diagnostic.tsv', 'diagnostic-full.tsv')
    ),
  },
  labels=('contradiction', 'entailment', 'neutral'),
  sizes={
    **_sizes(392702, 9815, 9796),
    'dev_mismatched': 9832,
    'test_mismatched': 9847,
    'diagnostic': 1104,
  },
  tfds='mnli',
  tfds_labels=TFDS_NLI,
  from_tfds=functools.partial(
    text_record, texts=('premise', 'hypothesis'), labels=TFDS_NLI
  ),
  tfds_splits={
    'train': 'train',
    'dev': 'validation_matched',
    'dev_mismatched': 'validation_mismatched',
    'test': 'test_matched',
    'test_mismatched': 'test_mismatched',
    'diagnostic': 'glue/ax:test',
  },
)
QNLI = _glue(
  'qnli',
  title='QNLI',
  rows=functools.partial(rows, texts=('question', 'sentence')),
  folders=('QNLI',),
  texts=('question', 'sentence'),
  labels=_ENTAILMENT,
  sizes=_sizes(104743, 5463, 5463),
  tfds='qnli',
  tfds_labels=_ENTAILMENT,
)
RTE = _glue(
  'rte',
  title='RTE',
  rows=rows,
  folders=('RTE',),
  labels=_ENTAILMENT,
  sizes=_sizes(2490, 277, 3000),
  tfds='rte',
  tfds_labels=_ENTAILMENT,
)
WNLI = _glue(
  'wnli',
  title='WNLI',
  rows=rows,
  folders=('WNLI',),
  labels=_BINARY,
  sizes=_sizes(635, 71, 146),
  tfds='wnli',
  tfds_labels=_BINARY,
)

TASKS = (COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI)
