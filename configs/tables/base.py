"""What a table of published results consists of, and how ours are measured.

A row that we can fill names the family of the weights that it is run from and
what its config changes; a column, the task and the metric. Together they give
`python -m train.sweep --config transfer:task=TASK,...`, see `train.tables`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

PRETRAINING = 'pretraining'  # in place of a task: its own held-out text
# The families that GPT's recipe fine-tunes, unless a row has another.
LEFT_TO_RIGHT = ('gpt', 'gpt2', 'lstm')
SPANS = ('squad1', 'squad2', 'triviaqa')  # tasks that only a BERT answers
TEST_IS_HIDDEN = (
  'the labels of the test set are not public: predict it with train.predict and'
  ' submit that'
)
# Test sets that GLUE's server scores too, but whose labels are known elsewhere.
KNOWN_TESTS = {
  'mrpc': (
    "MRPC's test labels are public: Microsoft's msr_paraphrase_test.txt has"
    ' them, and where that file is, summary.json has test/f1 and test/accuracy.'
  ),
  'stsb': (
    "STS-B's test scores are public, in sts-test.csv of the STS benchmark;"
    " GLUE's file is without them."
  ),
  'sst2': (
    "SST-2's test sentences are those of the public Stanford treebank, which"
    " labels them; GLUE's file does not."
  ),
}
NEEDS_ELMO = "needs ELMo's task models, which are not there yet"
# BERT-Base where a row asks for no more than that.
BERT_BASE = 'BERT-Base, such as google-bert/bert-base-uncased'
BERT_LARGE = 'BERT-Large, such as google-bert/bert-large-uncased'
CASED_BASE = 'BERT-Base, cased, such as google-bert/bert-base-cased'
CASED_LARGE = 'BERT-Large, cased, such as google-bert/bert-large-cased'
GPT = 'GPT, such as openai-community/openai-gpt'


@dataclasses.dataclass(frozen=True)
class Part:
  """What one run measures.

  Attributes:
    task: a task of `data.tasks`, or `PRETRAINING`.
    metrics: 'SPLIT/METRIC' of the run's summary; of several, their mean.
    args: of the transfer config, beside its task.
    overrides: key of the config -> value.
    label: tells runs of one task apart.
    seeds: how many where the command names no number; None: the table's.
  """

  task: str
  metrics: tuple[str, ...]
  args: tuple[str, ...] = ()
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  label: str = ''
  seeds: int | None = None


@dataclasses.dataclass(frozen=True)
class Column:
  """A figure that a table gives of each row.

  Attributes:
    name: 'task/metric', or what else it is.
    parts: what is measured for it: the mean of these.
    missing: without parts, why none can be measured; empty: it describes the
      row and is nothing to measure.
    dev_for_test: ours is of the dev set, the published one of the test set,
      which a server scores.
    percent: measured in 0..1, shown times 100.
    family: the family of weights that it says something of; empty: all.
  """

  name: str
  parts: tuple[Part, ...] = ()
  missing: str = ''
  dev_for_test: bool = False
  percent: bool = True
  family: str = ''


@dataclasses.dataclass(frozen=True)
class Row:
  """A published system.

  Attributes:
    name: as published.
    values: one a column: a number, a text as printed, or '' where none is.
    run: whether it is one that we are to produce.
    family: of the weights that it is run from: bert, gpt, gpt2 or lstm.
    needs: which weights these are.
    args: of the transfer config, beside its task.
    overrides: key of the config -> value.
    untrained: the size of a model that begins without pre-training: only the
      vocabulary of the weights is taken.
    missing: why it cannot be run.
    increase: names of two rows, whose difference it is, absolute and relative
      to the error of the first.
  """

  name: str
  values: tuple[float | str, ...]
  run: bool = False
  family: str = ''
  needs: str = ''
  args: tuple[str, ...] = ()
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  untrained: str = ''
  missing: str = ''
  increase: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of published results.

  Attributes:
    id: 'paper/name'; its file is paper_name.py.
    title: what it shows.
    source: paper and table.
    columns: see `Column`.
    rows: see `Row`, in the paper's order.
    train_sizes: training examples of each column, as published; may be empty.
    repeated: rows whose args and overrides are run from a user's own weights
      too, each for itself; empty: these are run with nothing changed.
    seeds: how many runs a cell is the mean of, at the settings that are best.
    grids: family of weights -> key of the config -> values, of all of which the
      paper took those that are best on dev. A key that a row, a part or a user
      sets has that value alone.
    tells: keys of the config whose values stand beside each figure.
    notes: what a reader must know.
    reference: file of another program's runs, which ours are compared with.
  """

  id: str
  title: str
  source: str
  columns: tuple[Column, ...]
  rows: tuple[Row, ...]
  train_sizes: tuple[int | str, ...] = ()
  repeated: tuple[str, ...] = ()
  seeds: int = 5
  grids: Mapping[str, Mapping[str, tuple[Any, ...]]] = dataclasses.field(
    default_factory=dict
  )
  tells: tuple[str, ...] = ('optim.learning_rate', 'train.select')
  notes: tuple[str, ...] = ()
  reference: str = ''


def on_dev(name: str, task: str, metric: str) -> Column:
  """Returns a column that is measured on the dev set."""
  return Column(name, (Part(task, (f'dev/{metric}',)),))


def on_test(name: str, task: str, metric: str) -> Column:
  """Returns a column of a test set whose labels are public."""
  return Column(name, (Part(task, (f'test/{metric}',)),))


def dev_for_test(name: str, task: str, metric: str) -> Column:
  """Returns a published test figure, of which ours is of the dev set."""
  return dataclasses.replace(on_dev(name, task, metric), dev_for_test=True)


def mean_of(
  name: str, columns: tuple[Column, ...], leave_out: tuple[str, ...] = ()
) -> Column:
  """Returns the unweighted mean of columns, but for those left out."""
  columns = tuple(column for column in columns if column.name not in leave_out)
  return Column(
    name,
    tuple(part for column in columns for part in column.parts),
    dev_for_test=any(column.dev_for_test for column in columns),
  )


# The columns of GLUE's tasks that several tables share. MNLI's dev set is the
# matched one, the mismatched is its own split.
MNLI_MATCHED = dev_for_test('mnli_matched/accuracy', 'mnli', 'accuracy')
MNLI_MISMATCHED = Column(
  'mnli_mismatched/accuracy',
  (Part('mnli', ('dev_mismatched/accuracy',)),),
  dev_for_test=True,
)
# Both at once.
MNLI_MEAN = Column(
  'mnli/accuracy',
  (Part('mnli', ('dev/accuracy', 'dev_mismatched/accuracy')),),
  dev_for_test=True,
)
QQP_F1 = dev_for_test('qqp/f1', 'qqp', 'f1')
QNLI = dev_for_test('qnli/accuracy', 'qnli', 'accuracy')
SST2 = dev_for_test('sst2/accuracy', 'sst2', 'accuracy')
COLA = dev_for_test('cola/matthews', 'cola', 'matthews')
STSB_SPEARMAN = dev_for_test('stsb/spearman', 'stsb', 'spearman')
STSB_PEARSON = dev_for_test('stsb/pearson', 'stsb', 'pearson')
MRPC_F1 = dev_for_test('mrpc/f1', 'mrpc', 'f1')
RTE = dev_for_test('rte/accuracy', 'rte', 'accuracy')
# Devlin et al. 2018, section 4.1, of GLUE; and appendix A.3.
GLUE_GRID = {'optim.learning_rate': (5e-5, 4e-5, 3e-5, 2e-5)}
PAPER_GRID = {
  'optim.learning_rate': (5e-5, 3e-5, 2e-5),
  'train.global_batch': (16, 32),
  'train.num_epochs': (3.0, 4.0),
}
ONE_RATE_NOTE = (
  'Ours runs the one learning rate that stands beside it; which the paper ran'
  ' here, or chose among, it does not say.'
)
NER_NOTE = (
  'Ours tags each sentence alone, unless it is run with'
  ' --config.task.document_context=True --config.task.max_length=512; the'
  ' paper, by its second version, read "the maximal document context".'
)
QNLI_NOTE = (
  "QNLI of 2018 was split differently from today's, which replaced it in 2019:"
  ' the published figures are of the first.'
)


def frozen(features: str) -> dict[str, Any]:
  """Returns fields of a row or part whose encoder is frozen.

  Args:
    features: which layers are read, a value of `task.features`.

  Returns:
    args and overrides: a two-layer BiLSTM of width 768 reads the features
    (Devlin et al. 2018, section 5.4).
  """
  return dict(
    args=('recipe=frozen',),
    overrides={'task.features': features},
  )
