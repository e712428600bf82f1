"""A task's program: how one model reads, learns and answers one task."""

import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from etils import epath
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from data.scoring.kinds import KINDS
from data.tasks.examples import Example, Task
from models.layers import Params
from train.architectures.architecture import Vocabulary
from train.engine.optim import Mask
from train.engine.steps import Objective, Sums
from train.host import device
from train.host.files import Json
from train.transfer import tag_paths, task_losses
from train.transfer.task_data import Split
from train.transfer.task_losses import Array, Batch, Outputs

Found = Mapping[str, list[Example]] | None
PredictStep = Callable[[Params, Batch], dict[str, Array]]


class TaskProgram(Objective):
  """A task as one model reads, learns and answers it.

  A language model with a head is an `encoders.EncoderProgram`, one of ELMo's
  task models a `word_program.WordProgram`. Both say how they read examples,
  which model they build, and what its parameters begin with.

  The losses are those of the papers. Classes, choices and tags: cross-entropy,
  for tags a mean over tagged words, or with `sums_words` over sentences of the
  sum over words; with a CRF the negative log-likelihood of each sentence's
  tags, summed. Scores: squared error, or with `soft_classes` the cross-entropy
  of a score between its two nearest classes (Tai et al. 2015, as GPT's
  release). Spans: the mean of the cross-entropies of first and last token.

  `lm_weight` times the language model's loss is added: the mean over rows of a
  row's mean over its tokens after the first, special symbols included, under a
  softmax over the tokens and, of a GPT, the positions
  (openai/finetune-transformer-lm, train.py). With the `vocabulary` of a BERT
  instead, the mean over tokens that are hidden in a second reading of the same
  rows, drawn at each step (`task_losses.hide`). So is `mix_l2` times the sum of
  squares of the mix's weights before their softmax (Peters et al. 2018, section
  5.1).

  Attributes:
    config: the config, with the sizes of the model in its section `model`.
    task: the declaration of the task.
    kind: the kind of the task.
    mesh: the devices; set by `prepare`.
    predict_step: the jitted step of `make_predict_step`; set by `prepare`.
    splits: name -> split; a fine-tuning has 'train' and the splits to score.
    usual_mfu: see `Architecture`.
  """

  vocab_size = 0  # rows of a vocabulary's table, unpadded
  sums_words = False  # whether a sentence's loss is the sum over its words
  is_begun = False  # whether parameters come from `init.weights`
  # The vocabulary, if hidden tokens are predicted beside the task.
  vocabulary: Vocabulary | None = None
  # The module with the layers, for `shards.place`; None: the whole model.
  layered: nn.Module | None = None

  mesh: Mesh
  predict_step: PredictStep
  splits: Mapping[str, Split]
  usual_mfu: float

  def __init__(self, config: ml_collections.ConfigDict, task: Task):
    """Raises ValueError if the settings do not fit the task."""
    self.config, self.task, self.kind = config, task, KINDS[task.kind]
    settings = config.task
    tag_paths.check_crf(task, settings)
    class_weights = tuple(settings.class_weights)
    mix_l2 = settings.mix_l2
    if mix_l2 and settings.features != 'mix':
      raise ValueError(
        f'task.mix_l2={mix_l2} with task.features={settings.features!r}:'
        " expected task.features='mix', whose weights it penalises"
      )
    if class_weights and (
      len(class_weights) != len(task.labels) or min(class_weights) < 0
    ):
      raise ValueError(
        f'task.class_weights={class_weights}: expected one for each of the'
        f' {len(task.labels)} labels of {task.name}, 0 or more'
      )
    learned = tag_paths.are_learned(settings)
    self._loss = 'paths' if learned else self.kind.loss
    self._class_weights = class_weights
    self.num_outputs = self._count_outputs()
    # ELMo's task models lack the key.
    lm_weight = getattr(settings, 'lm_weight', None)
    factors = {'task': 1, 'lm': lm_weight, 'mix_l2': mix_l2}
    self._factors = {name: f for name, f in factors.items() if f}
    self.loss_names = tuple(self._factors)
    has_hits = self._loss in task_losses.WITH_HITS
    self.metric_names = ('accuracy',) if has_hits else ()

  def _count_outputs(self) -> int:
    """Returns how many numbers the model gives for a text, a word, ..."""
    task, settings = self.task, self.config.task
    if self._loss == 'paths':
      return len(tag_paths.tag_labels(task, settings))
    soft = settings.soft_classes if self._loss == 'scores' else 0
    low, high = task.score_range
    if soft and (low, high) != (0, soft - 1):
      raise ValueError(
        f'task.soft_classes={soft}: the scores of {task.name} lie between'
        f' {low:g} and {high:g}, which needs {high + 1:g} classes from 0'
      )
    return soft or self.kind.num_outputs(task)

  # ---- Opening --------------------------------------------------------------

  @classmethod
  def check_keys(cls, config: ml_collections.ConfigDict) -> None:
    """Checks the keys of the model that need no data."""
    raise NotImplementedError

  @classmethod
  def check_files(
    cls, config: ml_collections.ConfigDict, tasks: Sequence[Task]
  ) -> None:
    """Checks that a config fits its tasks and its weights; reads no array."""
    raise NotImplementedError

  @classmethod
  def with_sizes_of(
    cls, config: ml_collections.ConfigDict, workdir: epath.Path
  ) -> ml_collections.ConfigDict:
    """Returns a config with the sizes that a run's initial weights gave it."""
    raise NotImplementedError

  @classmethod
  def open(
    cls,
    config: ml_collections.ConfigDict,
    tasks: Sequence[Task],
    workdir: epath.Path | None,
  ) -> list['TaskProgram']:
    """Opens the weights of a config; returns the programs of its tasks.

    It reads no array of an encoder, but all arrays of a language model whose
    layers are inputs. `workdir` is the run that trained the model; None opens
    the initial weights.
    """
    raise NotImplementedError

  # ---- Reading --------------------------------------------------------------

  @classmethod
  def open_sets(
    cls,
    programs: Sequence['TaskProgram'],
    names: Sequence[Sequence[str]],
    found: Found = None,
  ) -> list[dict[str, Split]]:
    """Reads splits of all tasks of a run; models get their sizes from them.

    `found` has the examples of splits that are read already. Errors name file
    and line.
    """
    raise NotImplementedError

  def open_splits(
    self, names: Sequence[str], found: Found = None
  ) -> dict[str, Split]:
    """Reads splits of a run with this task alone, see `open_sets`."""
    (splits,) = self.open_sets([self], [names], found)
    return splits

  def inputs(self, batch: Batch) -> tuple:
    """Returns the arrays of a batch that the model reads."""
    raise NotImplementedError

  # ---- The model and its parameters -----------------------------------------

  @functools.cached_property
  def model(self) -> nn.Module:
    """The module; its sizes may depend on the splits."""
    return self.build_model()

  def build_model(self) -> nn.Module:
    """Returns the module."""
    raise NotImplementedError

  def replaced(self, params: Params) -> set[str]:
    """Returns the paths of unboxed parameters that `load_weights` replaces."""
    raise NotImplementedError

  def load_weights(self, params: Params, seed: int) -> Params:
    """Returns the parameters of step 0: from the weights, or else as drawn."""
    raise NotImplementedError

  def trainable(self, params: Params) -> Mask:
    """Returns a mask that is False at parameters that never change."""
    raise NotImplementedError

  def load(self, workdir: epath.Path) -> Params:
    """Returns a finished run's parameters, on this process's first device."""
    raise NotImplementedError

  def step_flops(self, batch: Mapping[str, np.ndarray]) -> int:
    """Returns the FLOPs of a training step below the head."""
    raise NotImplementedError

  # ---- Messages and files ---------------------------------------------------

  def describe(self) -> list[tuple[str, str]]:
    """Returns rows on the model's parts for the plan, without its name."""
    raise NotImplementedError

  def write(self, workdir: epath.Path) -> None:
    """Writes the facts that `open` needs beside the parameters."""
    raise NotImplementedError

  def files(self) -> dict[str, str]:
    """Returns name -> digest of the files beside data and weights."""
    return {}

  def facts(self) -> dict[str, Json]:
    """Returns name -> value of the facts that an ensemble must share."""
    raise NotImplementedError

  # ---- The loss -------------------------------------------------------------

  def transform(self, host_batch: Batch, keys_B: Array) -> dict[str, Array]:
    """Returns the batch, with hidden tokens where a BERT predicts them."""
    hidden = {}
    if self.vocabulary:
      hidden = task_losses.hide(host_batch, keys_B, self.vocabulary)
    return {**host_batch, **hidden}

  def losses(self, outputs: Outputs, batch: Batch) -> tuple[Sums, Sums]:
    """Returns the task's loss and the added ones, and the accuracy if any."""
    outputs = {**outputs, 'logits': outputs['logits'].astype(jnp.float32)}
    values, hits = self.label_losses(outputs, batch)
    weights = self._label_weights(batch)
    metrics = {}
    if hits is not None:
      counted = (weights > 0).astype(jnp.float32)
      metrics['accuracy'] = (jnp.sum(hits * counted), counted.sum())
    sums = {'task': (jnp.sum(values * weights), weights.sum())}
    if 'lm_logits' in outputs and 'mlm_targets' in batch:
      sums['lm'] = task_losses.mlm_loss(outputs, batch)
    elif 'lm' in self._factors and self.vocabulary is None:
      sums['lm'] = task_losses.lm_loss(outputs, batch)
    if 'mix_l2' in self._factors:  # split over rows, as batches are
      rows = task_losses.row_weights(batch).sum()
      sums['mix_l2'] = (outputs['mix_penalty'] * rows, rows)
    return sums, metrics

  def label_losses(
    self, outputs: Outputs, batch: Batch
  ) -> tuple[Array, Array | None]:
    """Returns losses [B], of words [B, T], and hits of that shape or None."""
    return task_losses.LOSSES[self._loss](self.config.task, outputs, batch)

  def weights(self, batch: Batch) -> dict[str, Array]:
    """Returns each loss's divisor, the factor of the loss in it."""
    rows = task_losses.row_weights(batch).sum()
    totals = {name: rows / factor for name, factor in self._factors.items()}
    if 'lm' in self._factors and self.vocabulary is not None:
      totals['lm'] = batch['mlm_weights'].sum() / self._factors['lm']
    if self._loss in task_losses.SUMMED:
      totals['task'] = jnp.float32(1)
    elif self.sums_words:
      totals['task'] = rows
    else:
      totals['task'] = self._label_weights(batch).sum()
    # A batch without a single label has the loss 0, not NaN.
    return {
      name: jnp.where(total > 0, total, 1.0) for name, total in totals.items()
    }

  def targets(self, batch: Batch) -> tuple[Array, Array]:
    """Returns the labels, and which rows have one."""
    return batch['labels'], batch['label_mask']

  def _label_weights(self, batch: Batch) -> Array:
    """Returns each label's weight, float32 [B], of words [B, T]."""
    labels = batch['labels']
    weights = task_losses.row_weights(batch) * batch['label_mask']
    if self.kind.unit == 'word' and self._loss != 'paths':
      weights = weights[:, None] * (labels >= 0)
    if self.kind.unit == 'part':  # windows of words that lack the answer
      weights = weights * (labels >= 0).all(axis=1)
    if self._class_weights:
      table = jnp.asarray(self._class_weights, jnp.float32)
      weights *= jnp.take(table, jnp.maximum(labels, 0))
    return weights

  # ---- Answers --------------------------------------------------------------

  def prepare(self, mesh: Mesh) -> None:
    """Builds the step that predicts; the splits are read."""
    self.mesh = mesh
    self.predict_step = self.make_predict_step()

  def answers(self, outputs: Outputs, batch: Batch) -> tuple[Array, Array]:
    """Returns arrays [B, ...] for `data.scoring.answers`, and their lengths.

    A length, int [B], is the number of real places in a row: its real tokens,
    of several rows the most.
    """
    lengths = batch['token_mask'].sum(axis=-1)
    if lengths.ndim > 1:
      lengths = lengths.max(axis=-1)
    return outputs['logits'].astype(jnp.float32), lengths

  def make_predict_step(self) -> PredictStep:
    """Returns the jitted (params, batch) -> logits of all rows of the batch.

    Beside 'logits' are 'example_ids', 'example_mask' and 'lengths' [B], see
    `answers`, all on every device, and 'loss' [2], the sum of the task's loss
    and its weight.
    """

    def predict(params: Params, batch: Batch) -> dict[str, Array]:
      outputs = self.apply(self.model, params, batch)
      losses, _ = self.losses(outputs, batch)
      logits, lengths = self.answers(outputs, batch)
      return {
        'logits': logits,
        'example_ids': batch['example_ids'],
        'example_mask': batch['example_mask'],
        'lengths': lengths,
        'loss': jnp.stack(losses['task']),
      }

    everywhere = NamedSharding(self.mesh, PartitionSpec())
    return jax.jit(
      predict,
      out_shardings=everywhere,
      compiler_options=device.compiler_options(self.mesh),
    )
