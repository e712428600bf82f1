"""Programs of ELMo's task models: word vectors and a model (body) on them."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath
from flax import linen as nn

from data.inputs.batches import WORD_LENGTHS, Batches, WordInputs
from data.inputs.document_batches import DocumentBatches
from data.inputs.document_rows import DocumentFeatures
from data.inputs.features import Features
from data.scoring.kinds import KINDS
from data.tasks.examples import Example, Task
from models import char_cnn
from models.elmo_tasks import reader
from models.layers import Params
from train.engine import flops
from train.engine.optim import Mask
from train.host import files
from train.host.files import Json
from train.params import opened
from train.run import settings, workdirs
from train.transfer import bodies, tag_paths, task_data, word_checks
from train.transfer.program import Found, TaskProgram
from train.transfer.task_data import Split
from train.transfer.task_losses import Batch
from train.vectors import word_table
from train.vectors.vector_cache import VectorCache
from train.vectors.word_table import WordTable

FORM = 'words'  # of rows, see `framing.FORMS`
# In a workdir: the table's words, and the language model below.
READER_FILE = 'reader.json'
TABLE = 'words/table'  # path of the parameter

Rows = tuple[list[Example], Features]  # of a split


class WordProgram(TaskProgram):
  """Words and one of ELMo's task models, a class each in `word_bodies`.

  Attributes:
    source: the language model whose layers are inputs, with their cache; None
      without a language model.
    table: words with vectors of their own; None until splits are read.

  Attributes of each class:
    reads: kinds of tasks -> numbers of texts an example may have.
    has_layers: whether `model.num_layers` may be other than 1.
    takes_several: whether the model may be trained on several tasks.
    variants: values of `model.variant`.
    unit_variants: variants that scale vectors of words to length 1.
    mark_dim: see `models.elmo_tasks.reader.Reader`.
    char_dropout_rates: likewise.
    arrays: argument of the module -> array of a batch, besides the words.
  """

  usual_mfu = 0.02  # the compiler's estimates: 0.009 to 0.065

  reads: Mapping[str, tuple[int, ...]]
  has_layers = False
  takes_several = False
  variants: tuple[str, ...] = ('published',)
  unit_variants: tuple[str, ...] = ()
  mark_dim = 0
  char_dropout_rates = (0.0, 0.0)
  arrays: Mapping[str, str] = MappingProxyType({})

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    task: Task,
    source: VectorCache | None,
    table: WordTable | None = None,
  ):
    """Takes what `open` finds; ValueError as `TaskProgram`."""
    super().__init__(config, task)
    self.source, self.table = source, table

  @classmethod
  def check_keys(cls, config: ml_collections.ConfigDict) -> None:  # noqa: D102
    word_checks.check_keys(cls, config)

  @classmethod
  def with_sizes_of(  # noqa: D102
    cls, config: ml_collections.ConfigDict, workdir: epath.Path
  ) -> ml_collections.ConfigDict:
    del workdir
    return config  # which has them

  @classmethod
  def check_files(  # noqa: D102
    cls, config: ml_collections.ConfigDict, tasks: Sequence[Task]
  ) -> None:
    cls._find_files(config, tasks)
    for task in tasks:
      cls(config, task, None)

  @classmethod
  def _find_files(
    cls, config: ml_collections.ConfigDict, tasks: Sequence[Task]
  ) -> None:
    """Checks that the model reads its tasks, and that its files are there."""
    for task in tasks:
      cls._check_task(config, task)
    vectors = config.task.word_vectors
    if vectors is not None and not epath.Path(vectors).expanduser().exists():
      raise FileNotFoundError(
        f'task.word_vectors={vectors}: there is no such file'
      )
    if config.init.weights is not None:
      opened.open_weights(
        config.init.weights, config.data.tokenizer
      ).check_complete()
    elif config.task.mix_l2:
      raise ValueError(
        f'task.mix_l2={config.task.mix_l2} without init.weights: there are no'
        ' layers to mix'
      )

  @classmethod
  def _check_task(cls, config: ml_collections.ConfigDict, task: Task) -> None:
    """Raises ValueError if the model does not read such a task."""
    kind = KINDS[task.kind]
    is_of_words = task.name == 'own' and kind.unit in ('word', 'document')
    settings.expect(
      config,
      not is_of_words or len(config.own.text) == 1,
      'own.text',
      f'one field, as it is: files of the kind {task.kind} have no other texts',
    )
    texts = kind.num_texts(task)
    if texts not in cls.reads.get(task.kind, ()):
      fitting = [
        other
        for other, body in bodies.BODIES.items()
        if texts in body.reads.get(task.kind, ())
      ]
      counted = f'with {texts} {"text" if texts == 1 else "texts"} an example'
      raise ValueError(
        f'model.name={config.model.name!r}: {task.name} is a task of the kind'
        f' {task.kind} {counted}, which'
        f' {" or ".join(fitting) or "none of these models"} reads'
      )

  @classmethod
  def open(
    cls,
    config: ml_collections.ConfigDict,
    tasks: Sequence[Task],
    workdir: epath.Path | None,
  ) -> list['WordProgram']:
    """Returns the programs of tasks, without reading their data.

    A run that continues in `workdir` has its table of words.

    Raises:
      FileNotFoundError: if the weights are missing.
      ValueError: if they cannot be used, or model and task do not fit.
    """
    source = table = None
    if config.init.weights is not None:
      source = VectorCache(config.init.weights, config.data.tokenizer)
    if workdir is None:
      cls._find_files(config, tasks)
    else:
      table = cls._read_table(config, workdir, source)
    return [cls(config, task, source, table) for task in tasks]

  @classmethod
  def _read_table(
    cls,
    config: ml_collections.ConfigDict,
    workdir: epath.Path,
    source: VectorCache | None,
  ) -> WordTable:
    """Returns the table of a run, which has the same language model."""
    file = workdir / READER_FILE
    if not file.exists():
      raise FileNotFoundError(
        f'{file} is missing: the run there is not of a {config.model.name}:'
        ' pass another --workdir'
      )
    found = files.read_json(file)
    digest = source and source.digest
    if found.get('language_model') != digest:
      raise ValueError(
        f'{file}: the model reads the layers of other weights than'
        f' init.weights={config.init.weights} holds now: their digest was'
        f' {found["language_model"]}, found {digest}'
      )
    words = tuple(found['words'])
    return WordTable(words, found['dim'], found['lower'])

  @classmethod
  def open_sets(  # noqa: D102
    cls,
    programs: Sequence['WordProgram'],
    names: Sequence[Sequence[str]],
    found: Found = None,
  ) -> list[dict[str, Split]]:
    read: list[dict[str, Rows]] = []  # of each task, by split
    for program, names_of in zip(programs, names, strict=True):
      read.append({})
      for name in names_of:
        read[-1][name] = program._read_rows(name, (found or {}).get(name))
    first = programs[0]
    table = first.table or first._build_table(read)
    for program in programs:
      program.table = table
    return [
      {
        name: Split(name, examples, rows, program._batches(rows))
        for name, (examples, rows) in splits.items()
      }
      for program, splits in zip(programs, read, strict=True)
    ]

  def _read_rows(self, name: str, examples: list[Example] | None) -> Rows:
    """Returns the examples of a split, perhaps read already, and their rows."""
    config, task = self.config, self.task
    if examples is None:
      examples = task_data.read_split(config, task, name)
    rows = task_data.encode(
      config, task, examples, None, form=FORM, split=config.task.split
    )
    if not len(rows.tokens):
      raise ValueError(f'{task.name}, {name}: no text has a word')
    return examples, _with_characters(rows, bool(config.model.filters))

  def _build_table(self, read: Sequence[Mapping[str, Rows]]) -> WordTable:
    """Returns the table of the words in all splits of all tasks."""
    words: dict[str, list[str]] = {}
    for splits in read:
      for name, (_, rows) in splits.items():
        words.setdefault(name, []).extend(_words_of(rows))
    task_config = self.config.task
    return word_table.build(
      words,
      task_config.word_vectors,
      dim=task_config.word_dim,
      lower=task_config.lower_words,
      unknown=task_config.unknown_words,
      unit=self.config.model.variant in self.unit_variants,
    )

  def _batches(self, rows: Features) -> Batches:
    make = functools.partial(Batches, lengths=WORD_LENGTHS)
    if isinstance(rows, DocumentFeatures):
      make = DocumentBatches
    return make(
      rows,
      pad_id=0,
      max_length=self.config.task.max_length,
      bucket=self.config.data.bucket,
      inputs=self._inputs(rows),
    )

  def _inputs(self, rows: Features) -> WordInputs:
    table_rows = self.table.rows(rows.words)
    if self.source is None:
      return WordInputs(table_rows)
    vectors = self.source.vectors(list(_rows_of(rows)), self.config.data.cache)
    return WordInputs(table_rows, vectors.layers, vectors.starts)

  def build_body(self) -> nn.Module:
    """Returns the module above the words, whose fields are keys of `model`."""
    raise NotImplementedError

  def build_model(self) -> nn.Module:  # noqa: D102
    model, settings_ = self.config.model, self.config.task
    return reader.Reader(
      self.build_body(),
      num_texts=self.kind.num_texts(self.task),
      has_choices=self.kind.has_choices,
      num_rows=self.table.num_rows,
      word_dim=self.table.dim,
      fixed_words=self._has_fixed_words,
      char_embed_dim=model.char_embed_dim,
      filters=tuple(map(tuple, model.filters)),
      char_dropout_rates=self.char_dropout_rates,
      num_layers=self.source.model.num_layers if self.source else 0,
      features=settings_.features,
      mix_at=settings_.mix_at,
      layer_norm=settings_.mix_layer_norm,
      mix_dropout_rate=settings_.mix_dropout,
      transitions=tag_paths.transitions(self.task, settings_),
      path_scores=tag_paths.path_scores(settings_) or 'learned',
      array_names=tuple(self.arrays),
      mark_dim=self.mark_dim,
      dtype=jnp.dtype(model.dtype),
    )

  def inputs(self, batch: Batch) -> tuple:
    """Returns the arrays of a batch that the model reads."""
    return (
      batch['tokens'],
      batch['token_mask'],
      batch.get('characters'),
      batch.get('vectors'),
      batch['token_types'] if self.mark_dim else None,
      tuple(batch[name] for name in self.arrays.values()),
    )

  def replaced(self, params: Params) -> set[str]:  # noqa: D102
    del params
    return {TABLE} if self.table.num_rows else set()

  def load_weights(self, params: Params, seed: int) -> Params:  # noqa: D102
    if not self.table.num_rows:
      return params
    drawn = params['words']['table']
    table = jax.device_put(self.table.initial(seed), drawn.sharding)
    return {**params, 'words': {'table': table}}

  def trainable(self, params: Params) -> Mask:  # noqa: D102
    fixed = self._has_fixed_words
    return {
      name: jax.tree.map(lambda _, n=name: not (fixed and n == 'words'), part)
      for name, part in params.items()
    }

  @property
  def _has_fixed_words(self) -> bool:
    """Whether the table is not trained; drawn vectors always are."""
    task = self.config.task
    return task.fixed_words and task.word_vectors is not None

  def step_flops(self, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the model's FLOPs in a step: 3 forward passes."""
    shapes = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.inputs(batch)
    )
    return 3 * flops.forward(self.model, shapes, vocab_size=0, train=False)

  def describe(self) -> list[tuple[str, str]]:  # noqa: D102
    config = self.config
    words = (
      f'{len(self.table.words):,} with vectors of {self.table.dim}'
      f'{", fixed" if self._has_fixed_words else ""}'
      if self.table.dim
      else 'without vectors of their own'
    )
    if self.source is None:
      return [('words', words), ('weights', 'none: no language model')]
    place = config.task.mix_at.replace('both', 'input and output')
    return [
      ('words', words),
      (
        'weights',
        f'{config.init.weights}: {self.source.model.num_layers} layers of'
        f' {self.source.model.dim}, {config.task.features} at {place}',
      ),
    ]

  def write(self, workdir: epath.Path) -> None:
    """Writes the words of the table, and the language model's digest."""
    source, table = self.source, self.table
    found = {
      'language_model': source and source.digest,
      'dim': table.dim,
      'lower': table.lower,
      'words': list(table.words),
    }
    text = json.dumps(found, ensure_ascii=False) + '\n'
    files.write_atomically(workdir / READER_FILE, text)

  def load(self, workdir: epath.Path) -> Params:  # noqa: D102
    return opened.load_params(workdir / workdirs.MODEL_FOLDER)

  def facts(self) -> dict[str, Json]:  # noqa: D102
    words = json.dumps([self.table.lower, *self.table.words])
    return {
      'the words of the table': hashlib.sha256(words.encode()).hexdigest()[:8],
      'the language model': self.source and self.source.digest[:8],
      'the form of its inputs': FORM,
      'the splitting of texts': self.config.task.split,
      'reading characters': bool(self.config.model.filters),
    }

  def files(self) -> dict[str, str]:  # noqa: D102
    found = self.table.vectors
    if found is None:
      return {}
    digest = hashlib.sha256(np.ascontiguousarray(found).tobytes()).hexdigest()
    return {'the vectors of words': digest}


def _rows_of(rows: Features) -> Iterator[list[str]]:
  """Yields the words of each row."""
  words = np.array(rows.words, object)
  for start, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
    yield words[rows.tokens[start:end]].tolist()


def _words_of(rows: Features) -> list[str]:
  """Returns the words of all rows, one after the other."""
  return np.array(rows.words, object)[rows.tokens].tolist()


def _with_characters(rows: Features, wanted: bool) -> Features:
  """Returns rows with the characters of the longest word, or without any.

  Behind a word stays room for a filter that sees none of it, so the width
  changes no maximum over positions.
  """
  if not wanted:
    return dataclasses.replace(rows, characters=None)
  used = (rows.characters != char_cnn.NO_CHARACTER).any(axis=0)
  longest = int(np.flatnonzero(used).max(initial=0)) + 1
  return dataclasses.replace(
    rows, characters=rows.characters[:, : longest + word_checks.ROOM]
  )
