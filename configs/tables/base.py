"""Declarations of published tables, and how our figures are measured.

A row to fill names the family of its weights and its changes of the config; a
column names task and metric. Together they give a `train.sweep` command. A row
of ELMo's paper, or of others who read its vectors, names a task model for each
task, which is trained above the weights.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from configs import variants

PRETRAINING = 'pretraining'  # in place of a task: the run's held-out text
LEFT_TO_RIGHT = ('gpt', 'gpt2', 'lstm')  # families with GPT's recipe by default
SPANS = ('squad1', 'squad2', 'triviaqa')  # tasks for BERT only
TEST_IS_HIDDEN = (
  'the labels of the test set are not public: predict it with train.predict and'
  ' submit that'
)
KNOWN_TESTS = {  # test sets of GLUE's server with labels published elsewhere
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
# Families of what a row of task models is run from, beside language models.
VECTORS = 'vectors'  # a file of vectors of words
NO_WEIGHTS = 'none'  # drawn vectors of words
# Kinds of pre-trainings beside `VECTORS`, see `Row.kind`.
TRAINED, UNTRAINED = 'trained', 'untrained'
# Fields of rows with published weights.
BERT_BASE, BERT_LARGE, CASED_BASE, CASED_LARGE, MULTILINGUAL, MULTI_CASED = (
  dict(family='bert', needs=f'{size}, such as google-bert/{name}')
  for size, name in (
    ('BERT-Base', 'bert-base-uncased'),
    ('BERT-Large', 'bert-large-uncased'),
    ('BERT-Base, cased', 'bert-base-cased'),
    ('BERT-Large, cased', 'bert-large-cased'),
    ('multilingual BERT, uncased', 'bert-base-multilingual-uncased'),
    ('multilingual BERT, cased', 'bert-base-multilingual-cased'),
  )
)
GPT = dict(family='gpt', needs='GPT, such as openai-community/openai-gpt')
ELMO = dict(family='elmo', needs='ELMo, such as the workdir of elmo_1b')
GLOVE = dict(
  family=VECTORS, needs='a file of vectors of words, such as GloVe 840B 300d'
)
DRAWN = dict(family=NO_WEIGHTS, needs='no weights')


@dataclasses.dataclass(frozen=True)
class Part:
  """A task to run and its metrics.

  Attributes:
    task: a task of `data.tasks`, or `PRETRAINING`.
    metrics: 'SPLIT/METRIC' of the run's summary; several are averaged.
    args: of the transfer config, beside its task.
    overrides: key of the config -> value.
    label: distinguishes runs of one task.
    seeds: default number of seeds; None: the table's.
  """

  task: str
  metrics: tuple[str, ...]
  args: tuple[str, ...] = ()
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  label: str = ''
  seeds: int | None = None


@dataclasses.dataclass(frozen=True)
class TaskModel:
  """One of ELMo's task models, with settings of a task.

  Attributes:
    name: of `configs.variants.WORD_MODELS`, whose settings it has; the
      following are other ones, key of the config -> value.
    overrides: always.
    mixed: with a language model.
    alone: without one.
  """

  name: str
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  mixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  alone: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Column:
  """A column of a table.

  Attributes:
    name: 'task/metric', or a description.
    parts: tasks to run, which are averaged.
    missing: without parts, why it cannot be measured; empty: a description.
    dev_for_test: our figure is of dev, the published one of a hidden test set.
    percent: measured in 0..1, shown times 100.
    family: the only family of weights with this figure; empty: all have it.
    pairs: without parts, the name of a folder of minimal pairs that
      `small_table` asks the language model; empty: none.
    held_out: likewise, the objective by whose perplexity of held-out text it
      scores the model, whatever that was trained on; empty: none.
  """

  name: str
  parts: tuple[Part, ...] = ()
  missing: str = ''
  dev_for_test: bool = False
  percent: bool = True
  family: str = ''
  pairs: str = ''
  held_out: str = ''


@dataclasses.dataclass(frozen=True)
class Row:
  """A published system; without `family`, `missing` and `increase` only quoted.

  Attributes:
    values: one for each column: a number, a text as printed, or ''.
    family: of the weights to run it from: bert, gpt, gpt2, lstm or elmo; or
      `VECTORS`, or `NO_WEIGHTS`.
    needs: describes these weights.
    args: as in `Part`, like `overrides`.
    models: task -> the task model that reads the weights; empty: they are
      fine-tuned. An unpublished figure of another task is not asked for.
    together: tasks that one model is trained on.
    requires: keys of the config that a user must set.
    untrained: size of a model that takes only the vocabulary of the weights.
    missing: why it cannot be run.
    share: of the task's training examples, those to train on: a point of a
      curve. A user's own weights repeat such a row, vectors of words too.
    increase: names of two rows: this row is their difference, absolute and
      relative to the error of the first.
    reference: `inputs` of the runs of `Table.reference` to compare with;
      empty, as in all rows of a table: all runs.
    pretraining: the config, NAME:ARGUMENTS, of the pre-training that
      `small_table` runs for the row; rows of one config share it.
    changes: of that config, key -> value.
  """

  name: str
  values: tuple[float | str, ...]
  family: str = ''
  needs: str = ''
  args: tuple[str, ...] = ()
  overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  models: Mapping[str, TaskModel] = dataclasses.field(default_factory=dict)
  together: tuple[str, ...] = ()
  requires: tuple[str, ...] = ()
  untrained: str = ''
  missing: str = ''
  share: float | None = None
  increase: tuple[str, ...] = ()
  reference: str = ''
  pretraining: str = ''
  changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def kind(self) -> str:
    """The kind of the row's pre-training: `TRAINED`, `UNTRAINED`, `VECTORS`."""
    if self.family == VECTORS:
      return VECTORS
    _, _, words = self.pretraining.partition(':')
    return UNTRAINED if UNTRAINED in words.split(',') else TRAINED


@dataclasses.dataclass(frozen=True)
class Contrast:
  """An argument of a paper: one row of its table is above another.

  Attributes:
    claim: the argument, a sentence.
    better: the name of the row that should be above.
    worse: of the other.
    published: of two quoted rows, whose published figures differ by the same
      thing; empty: `better` and `worse` have published figures of their own.
  """

  claim: str
  better: str
  worse: str
  published: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of published results.

  Attributes:
    id: 'paper/name'; its file is paper_name.py.
    source: paper and table.
    rows: in the paper's order.
    train_sizes: training examples of each column, as published; may be empty.
    repeated: names of rows to repeat for a user's own weights, of any family;
      empty: these have one row without changes.
    seeds: number of seeds of a cell.
    grids: family of weights -> key of the config -> values to try on dev,
      unless a row, a part or a user sets the key.
    tells: keys of the config to print beside each figure.
    reference: file of another program's runs, for comparison.
    maker: a module of `train.papers` that makes the table in a way of its own;
      empty: its cells are fine-tunings or figures of pre-trainings.
    pretrainings: number of pre-trainings of a row, where the table runs them.
    texts: folders of the text that they read, of TEXTS in
      `train.papers.small_table`.
    contrasts: the arguments that such a table tries.
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
  maker: str = ''
  pretrainings: int = 2
  texts: tuple[str, ...] = ('novels', 'wikitext-2')
  contrasts: tuple[Contrast, ...] = ()

  @property
  def has_curves(self) -> bool:
    """Whether scores are drawn by the share of the training examples."""
    return any(row.share for row in self.rows)


def on_dev(name: str, task: str, metric: str) -> Column:
  """Returns a column of the dev set."""
  return Column(name, (Part(task, (f'dev/{metric}',)),))


def on_test(name: str, task: str, metric: str) -> Column:
  """Returns a column of a test set with public labels."""
  return Column(name, (Part(task, (f'test/{metric}',)),))


def dev_for_test(name: str, task: str, metric: str) -> Column:
  """Returns a column with published test figures and our dev figures."""
  return dataclasses.replace(on_dev(name, task, metric), dev_for_test=True)


def mean_of(name: str, columns: tuple[Column, ...]) -> Column:
  """Returns the unweighted mean of columns."""
  return Column(
    name,
    tuple(part for column in columns for part in column.parts),
    dev_for_test=any(column.dev_for_test for column in columns),
  )


# GLUE's columns. MNLI's dev set is the matched one.
MNLI_MATCHED = dev_for_test('mnli_matched/accuracy', 'mnli', 'accuracy')
MNLI_MISMATCHED = Column(
  'mnli_mismatched/accuracy',
  (Part('mnli', ('dev_mismatched/accuracy',)),),
  dev_for_test=True,
)
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
# Devlin et al. 2018, section 4.1, for GLUE.
GLUE_GRID = {'optim.learning_rate': (5e-5, 4e-5, 3e-5, 2e-5)}
PAPER_GRID = variants.PAPER_GRID
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
  """Returns a frozen encoder's fields (Devlin et al. 2018, section 5.4)."""
  return dict(args=('recipe=frozen',), overrides={'task.features': features})


GLUE = (
  'cola',
  'sst2',
  'mrpc',
  'stsb',
  'qqp',
  'mnli',
  'qnli',
  'rte',
  'wnli',
)
# Task -> its model, as published, where it differs from `variants.WORD_MODELS`.
ELMO_MODELS = {
  # Peters et al. 2018, appendix: ELMo at the input and the output of the first
  # LSTM, which its Table 3 repeats; layer norm, lambda 0.001.
  'snli': TaskModel(
    'esim',
    mixed={
      'task.mix_at': 'both',
      'task.mix_layer_norm': True,
      'task.mix_l2': 0.001,
    },
  ),
  # allennlp 0.9.0, training_config/ner_elmo.jsonnet; the paper's lambda too.
  'conll2003': TaskModel('bilstm_crf', mixed={'task.mix_l2': 0.1}),
  # allennlp 0.9.0, training_config/biattentive_classification_network
  # [_elmo].jsonnet: all phrases, ELMo at the input; the paper's lambda.
  'sst5_phrases': TaskModel(
    'bcn',
    mixed={'task.mix_l2': 0.001},
    alone={'model.dropout_rate': 0.25},
  ),
  # allenai/document-qa at 2f9fa687: ELMo at the input and at the output of the
  # first GRU, which the row of variants has; no penalty of the mix.
  'squad1': TaskModel('bidaf_plus'),
  # allennlp 0.9.0, training_config/semantic_role_labeler_elmo.jsonnet, and the
  # paper's appendix: ELMo in place of vectors of words.
  'srl': TaskModel(
    'deep_srl',
    mixed={
      'task.word_dim': 0,
      'task.mix_dropout': 0.1,
      'task.mix_l2': 0.001,
      'train.patience': 200,
    },
  ),
  # kentonl/e2e-coref: ELMo at the input.
  'coref': TaskModel('e2e_coref'),
  # Zellers et al. 2018, section 5: ESIM on the context and each ending.
  'swag': TaskModel('esim'),
  # nyu-mll/GLUE-baselines: ELMo without other vectors of words.
  **dict.fromkeys(GLUE, TaskModel('bilstm_attention', {'task.word_dim': 0})),
}
# Keys that tables of task models tell.
WORD_TELLS = ('optim.learning_rate', 'train.select', 'task.word_vectors')
VECTORS_NOTE = (
  'word_vectors is the file of vectors of words that ours reads, beside the'
  ' layers of a language model if the row has one; drawn: none was given by'
  ' --config.task.word_vectors, and vectors of 100 features are learned.'
  ' The published rows have pre-trained ones.'
)


def models_of(*tasks: str) -> dict[str, TaskModel]:
  """Returns the published models of some tasks."""
  return {task: ELMO_MODELS[task] for task in tasks}


GLUE_MODELS = models_of(*GLUE)
