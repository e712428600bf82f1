"""ELMo's task models as readers: words, their vectors, a body above them."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from data.tasks.examples import Task
from models import char_cnn
from models.elmo_tasks import reader
from train.engine import flops
from train.host import files
from train.params import opened
from train.run import workdirs
from train.transfer import bodies, kinds, task_data, word_checks
from train.transfer.reader import Found, Reader
from train.transfer.task_data import Split
from train.vectors import word_table
from train.vectors.vector_cache import VectorCache
from train.vectors.word_table import WordTable

FORM = 'words'  # of rows, see `framing.FORMS`
# In a workdir: the table's words, and the language model below.
READER_FILE = 'reader.json'
TABLE = 'words/table'  # path of the parameter


@dataclasses.dataclass(frozen=True)
class WordReader(Reader):
  """Words and one of ELMo's task models.

  Attributes:
    source: the language model whose layers are read, and their cache; None:
      none is.
    table: words with vectors of their own; None until splits are read.
  """

  source: VectorCache | None
  table: WordTable | None = None

  @property
  def body(self) -> bodies.Body:
    """The row of the model in the table of bodies."""
    return bodies.BODIES[self.config.model.name]

  @property
  def sums_words(self) -> bool:  # noqa: D102
    # Configs older than the key are of other bodies.
    return getattr(self.config.model, 'variant', '') in self.body.sums_words

  @property
  def layered(self) -> None:  # noqa: D102
    return None

  def open_sets(  # noqa: D102
    self, wanted: Sequence[tuple[Task, Sequence[str]]], found: Found = None
  ) -> tuple['WordReader', list[dict[str, Split]]]:
    config, task_config = self.config, self.config.task
    read = []  # of each task: split -> (examples, rows)
    for task, names in wanted:
      read.append({})
      for name in names:
        given = (found or {}).get(name)
        if given is None:
          given = task_data.read_split(config, task, name)
        rows = task_data.encode(
          config, task, given, None, form=FORM, split=task_config.split
        )
        if not len(rows.tokens):
          raise ValueError(f'{task.name}, {name}: no text has a word')
        rows = _with_characters(rows, bool(config.model.filters))
        read[-1][name] = given, rows
    table = self.table or self._build_table(read)
    return dataclasses.replace(self, table=table), [
      {
        name: Split(name, examples, rows, self._batches(rows, table))
        for name, (examples, rows) in splits.items()
      }
      for splits in read
    ]

  def _build_table(self, read: Sequence[Mapping[str, Any]]) -> WordTable:
    """Returns the table of the words of all splits of all tasks."""
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
      unit=self.config.model.variant in self.body.unit_vectors,
    )

  def _batches(self, rows: Features, table: WordTable) -> Batches:
    make = functools.partial(Batches, lengths=WORD_LENGTHS)
    if isinstance(rows, DocumentFeatures):
      make = DocumentBatches
    return make(
      rows,
      pad_id=0,
      max_length=self.config.task.max_length,
      bucket=self.config.data.bucket,
      inputs=self._inputs(rows, table),
    )

  def _inputs(self, rows: Features, table: WordTable) -> WordInputs:
    table_rows = table.rows(rows.words)
    if self.source is None:
      return WordInputs(table_rows)
    vectors = self.source.vectors(list(_rows_of(rows)), self.config.data.cache)
    return WordInputs(table_rows, vectors.layers, vectors.starts)

  def build_model(self, task: Task) -> nn.Module:  # noqa: D102
    model, settings_ = self.config.model, self.config.task
    kind = kinds.kind_of(task, settings_)
    filters = tuple(map(tuple, model.filters))
    body = self.body.build(kind.num_outputs(task, settings_), model)
    if self.body.tells_words:
      head_dim = self.table.dim + sum(count for _, count in filters)
      body = body.clone(head_dim=head_dim)
    if task.kind == 'span':
      body = body.clone(max_question=settings_.max_question)
    if settings_.names:
      body = self.body.share(body, task.name)
    return reader.Reader(
      body,
      num_texts=kind.num_texts(task),
      has_choices=kind.has_choices,
      num_rows=self.table.num_rows,
      word_dim=self.table.dim,
      fixed_words=self._has_fixed_words,
      char_embed_dim=model.char_embed_dim,
      filters=filters,
      char_dropout_rates=self.body.char_dropout_rates,
      num_layers=self.source.model.num_layers if self.source else 0,
      features=settings_.features,
      mix_at=settings_.mix_at,
      layer_norm=settings_.mix_layer_norm,
      mix_dropout_rate=settings_.mix_dropout,
      transitions=kinds.transitions(task, settings_),
      path_scores=kinds.path_scores(settings_) or 'learned',
      array_names=tuple(self.body.arrays),
      mark_dim=self.body.mark_dim,
      dtype=jnp.dtype(model.dtype),
    )

  def inputs(self, batch: Mapping[str, Any]) -> tuple:
    """Returns the arrays of a batch that the model reads."""
    return (
      batch['tokens'],
      batch['token_mask'],
      batch.get('characters'),
      batch.get('vectors'),
      batch['token_types'] if self.body.mark_dim else None,
      tuple(batch[name] for name in self.body.arrays.values()),
    )

  def replaced(self, task: Task, params: Any) -> set[str]:  # noqa: D102
    del task, params
    return {TABLE} if self.table.num_rows else set()

  def begin(self, task: Task, params: Any, seed: int) -> Any:  # noqa: D102
    del task
    if not self.table.num_rows:
      return params
    drawn = params['words']['table']
    table = jax.device_put(self.table.initial(seed), drawn.sharding)
    return {**params, 'words': {'table': table}}

  def trainable(self, params: Any) -> Any:  # noqa: D102
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

  def step_flops(self, model: nn.Module, batch: Mapping[str, Any]) -> int:
    """Returns the model's FLOPs in a step: 3 forward passes."""
    shapes = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), self.inputs(batch)
    )
    return 3 * flops.forward(model, shapes, vocab_size=0, train=False)

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

  def write(self, workdir: epath.Path, task: Task) -> None:
    """Writes the words of the table, and the language model's digest."""
    del task
    source, table = self.source, self.table
    found = {
      'language_model': source and source.digest,
      'dim': table.dim,
      'lower': table.lower,
      'words': list(table.words),
    }
    text = json.dumps(found, ensure_ascii=False) + '\n'
    files.write_atomically(workdir / READER_FILE, text)

  def load(self, workdir: epath.Path) -> Any:  # noqa: D102
    return opened.load_params(workdir / workdirs.MODEL_FOLDER)

  def facts(self, model: nn.Module) -> dict[str, Any]:  # noqa: D102
    del model
    words = json.dumps([self.table.lower, *self.table.words])
    return {
      'the words of the table': hashlib.sha256(words.encode()).hexdigest()[:8],
      'the language model': self.source and self.source.digest[:8],
      'the form of its inputs': FORM,
      'the splitting of texts': self.config.task.split,
      'reading characters': bool(self.config.model.filters),
    }

  def files(self) -> dict[str, Any]:  # noqa: D102
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


def check_files(
  config: ml_collections.ConfigDict, tasks: Sequence[Task]
) -> None:
  """Checks that a model reads its tasks, and that its files are there.

  No array is read. For the errors see `open_reader`.
  """
  for task in tasks:
    _check_task(config, task)
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


def open_reader(
  config: ml_collections.ConfigDict,
  tasks: Sequence[Task],
  workdir: epath.Path | None,
) -> WordReader:
  """Returns the reader of a config, without reading the tasks' data.

  A run that continues in `workdir` has its table of words.

  Raises:
    FileNotFoundError: if the weights are missing.
    ValueError: if they cannot be used, or model and task do not fit.
  """
  source = None
  if config.init.weights is not None:
    source = VectorCache(config.init.weights, config.data.tokenizer)
  if workdir is None:
    check_files(config, tasks)
    return WordReader(config, source)
  file = workdir / READER_FILE
  if not file.exists():
    raise FileNotFoundError(
      f'{file} is missing: the run there is not of a {config.model.name}: pass'
      ' another --workdir'
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
  table = WordTable(words, found['dim'], found['lower'])
  return WordReader(config, source, table)


def _check_task(config: ml_collections.ConfigDict, task: Task) -> None:
  """Raises ValueError if the model does not read such a task."""
  name = config.model.name
  reads = bodies.BODIES[name].reads
  texts = kinds.KINDS[task.kind].num_texts(task)
  if texts not in reads.get(task.kind, ()):
    fitting = [
      other
      for other, body in bodies.BODIES.items()
      if texts in body.reads.get(task.kind, ())
    ]
    counted = f'with {texts} {"text" if texts == 1 else "texts"} an example'
    raise ValueError(
      f'model.name={name!r}: {task.name} is a task of the kind {task.kind}'
      f' {counted}, which'
      f' {" or ".join(fitting) or "none of these models"} reads'
    )
