"""The part of a task's program that depends on how examples are read."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
from etils import epath
from flax import linen as nn

from data.tasks.examples import Example, Task
from train.transfer.task_data import Split

Found = Mapping[str, list[Example]] | None


@dataclasses.dataclass(frozen=True)
class Reader(abc.ABC):
  """Reads examples: as a language model's tokens, or as words.

  Attributes:
    config: with the sizes of the model in its section `model`.
  """

  config: ml_collections.ConfigDict

  vocab_size = 0  # rows of a vocabulary's table, unpadded
  sums_words = False  # whether a sentence's loss is the sum over its words
  is_begun = False  # whether parameters come from `init.weights`
  masks = None  # the vocabulary, if hidden tokens are predicted beside the task

  @property
  @abc.abstractmethod
  def layered(self) -> nn.Module | None:
    """The module with the layers, for `shards.place`; None: the whole model."""

  @abc.abstractmethod
  def inputs(self, batch: Mapping[str, Any]) -> tuple:
    """Returns the arrays of a batch that the model reads."""

  @abc.abstractmethod
  def open_sets(
    self, wanted: Sequence[tuple[Task, Sequence[str]]], found: Found = None
  ) -> tuple['Reader', list[dict[str, Split]]]:
    """Reads splits of tasks, and returns the reader that has seen them.

    `found` are the examples of splits that are read already. Errors name file
    and line.
    """

  def open_splits(
    self, task: Task, names: Sequence[str], found: Found = None
  ) -> tuple['Reader', dict[str, Split]]:
    """Reads splits of one task, see `open_sets`."""
    reader, (splits,) = self.open_sets([(task, names)], found)
    return reader, splits

  @abc.abstractmethod
  def build_model(self, task: Task) -> nn.Module:
    """Returns the module of a task."""

  @abc.abstractmethod
  def replaced(self, task: Task, params: Any) -> set[str]:
    """Returns the paths of unboxed parameters that `begin` replaces whole."""

  @abc.abstractmethod
  def begin(self, task: Task, params: Any, seed: int) -> Any:
    """Returns the parameters of step 0: as drawn, or those of the weights."""

  @abc.abstractmethod
  def trainable(self, params: Any) -> Any:
    """Returns a tree of bool, False at parameters that are never changed."""

  @abc.abstractmethod
  def step_flops(self, model: nn.Module, batch: Mapping[str, Any]) -> int:
    """Returns the FLOPs of a training step below the head."""

  @abc.abstractmethod
  def describe(self) -> list[tuple[str, str]]:
    """Returns the rows of a plan on the model's parts, but for its name."""

  @abc.abstractmethod
  def write(self, workdir: epath.Path, task: Task) -> None:
    """Writes the facts that `open_reader` needs beside the parameters."""

  @abc.abstractmethod
  def load(self, workdir: epath.Path) -> Any:
    """Returns a finished run's parameters, on this process's first device."""

  def files(self) -> dict[str, Any]:
    """Returns name -> digest of files beside data and weights."""
    return {}

  @abc.abstractmethod
  def facts(self, model: nn.Module) -> dict[str, Any]:
    """Returns name -> value of the facts that an ensemble must share."""
