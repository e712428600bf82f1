"""How probes are trained, and which: read before JAX is imported."""

import dataclasses
import re
from collections.abc import Mapping
from typing import NamedTuple

from train.host.files import Json

LAYERS = ('cumulative', 'single', 'both')
VERSION = 1  # of results; another one refuses those that were made before
Record = Mapping[str, Json]  # results of a task, content of TASK.json
_RANGE = re.compile(r'(0-)?\d{1,3}')


@dataclasses.dataclass(frozen=True)
class Settings:
  """The recipe of all probes of a task; the defaults are for a CPU.

  Attributes:
    steps: at most.
    batch_size: sentences.
    learning_rate: of Adam.
    mix_factor: times the learning rate is the rate of the layers' weights.
      Adam moves a weight by about the rate a step, and a softmax needs weights
      some units apart.
    clip_norm: the largest norm of a probe's gradient.
    validate_every: steps.
    threshold: the gain in dev F1, 0 to 1, that counts as progress.
    halve_after: validations without progress that halve the rate.
    stop_after: validations without progress that end a probe's training.
    smallest_rate: ends a probe's training when its rate gets there.
  """

  steps: int = 1000
  batch_size: int = 32
  learning_rate: float = 1e-3
  mix_factor: float = 10.0
  clip_norm: float = 5.0
  validate_every: int = 200
  threshold: float = 1e-4
  halve_after: int = 5
  stop_after: int = 20
  smallest_rate: float = 1e-6

  def __post_init__(self) -> None:
    for name in ('learning_rate', 'mix_factor', 'clip_norm', 'smallest_rate'):
      if not getattr(self, name) > 0:
        raise ValueError(f'--{name}={getattr(self, name)}: expected above 0')
    if self.threshold < 0:
      raise ValueError(f'--threshold={self.threshold}: expected 0 or more')


# jiant-v1-legacy, config/defaults.conf and config/edgeprobe/*.conf: at most 250
# validations, and 100 of the small sets; its patience of 5 and 20 ends with the
# validation after. Unlike there, Adam is not amsgrad, all of dev is validated,
# and the F1 that chooses leaves out what the published F1 leaves out.
PUBLISHED = Settings(
  steps=250_000,
  learning_rate=1e-4,
  mix_factor=1.0,
  validate_every=1000,
  halve_after=6,
  stop_after=21,
)
PUBLISHED_BY_TASK = {
  name: dataclasses.replace(PUBLISHED, steps=10_000, validate_every=100)
  for name in ('relations', 'spr1', 'spr2', 'dpr')
}


def settings_of(
  task: str, published: bool, changes: Mapping[str, float]
) -> Settings:
  """Returns the recipe of a task: our defaults or the source's, changed."""
  base = Settings()
  if published:
    base = PUBLISHED_BY_TASK.get(task, PUBLISHED)
  return dataclasses.replace(base, **changes)


class Member(NamedTuple):
  """A probe: the mix of layers `first` to `last`, and its seed.

  Single layers have `first == last`; layer 0, the lexical baseline, is a mix
  of one.
  """

  first: int
  last: int
  seed: int


def check_layers(layers: str) -> None:
  """Raises ValueError unless --layers has one of its forms."""
  if layers not in LAYERS and not _RANGE.fullmatch(layers):
    raise ValueError(
      f'--layers={layers}: expected {", ".join(LAYERS)}, one mix as in'
      ' --layers=0-6, or one layer as in --layers=6'
    )


def members(layers: str, num_layers: int, seeds: int) -> list[Member]:
  """Returns the probes of `layers`, the seeds of each one beside each other.

  `layers` is one of `LAYERS`, '0-K' or 'K'; `num_layers` is L, with the
  embeddings. Raises ValueError for a layer that is not there.
  """
  pairs = []
  if layers in ('cumulative', 'both'):
    pairs += [(0, last) for last in range(num_layers)]
  if layers == 'single':
    pairs.append((0, 0))
  if layers in ('single', 'both'):
    pairs += [(last, last) for last in range(1, num_layers)]
  if layers not in LAYERS:
    check_layers(layers)
    last = int(layers.rpartition('-')[2])
    if last >= num_layers:
      raise ValueError(
        f'--layers={layers}: the model has the layers 0 to {num_layers - 1}'
      )
    pairs.append((0 if '-' in layers else last, last))
  return [Member(*pair, seed) for pair in pairs for seed in range(seeds)]
