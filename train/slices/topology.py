"""TPU slices and GPUs by name, described without the hardware."""

import difflib
import importlib.metadata
import importlib.util
import math
import re
from typing import NamedTuple

import jax
from jax.experimental import topologies

from train.host import device
from train.slices import gpus


class Generation(NamedTuple):
  """One generation of TPU. A device is a chip, or a core of v2, v3 and tpu7x.

  Attributes:
    layout_name: the compiler's name for the generation.
    dimensions: of its torus, 2 or 3.
    units_a_chip: units in slices' names: chips for v5e and v6e, else cores.
    most_chips: of the largest slice.
    memory_gbps: memory bandwidth of a device, GB/s.
    links_gbps: rate at which a device sends over all its links, GB/s.
    usable_gib: memory of a device that the compiler gives to a program.
    clock_ghz: of its cores.
  """

  layout_name: str
  dimensions: int
  units_a_chip: int
  most_chips: int
  memory_gbps: float
  links_gbps: float
  usable_gib: float
  clock_ghz: float


# Rates: v2 and v3 Jouppi et al. 2020 (CACM 63:7, halved: a device is a core),
# the others Cloud TPU's pages of each generation, "system architecture" (TPU7x
# halved, too: its links' 1,200 GB/s a chip count both directions); the
# memory is named by the compiler when a program is too large. Clocks: v2 and v3
# of the same paper, v4 Jouppi et al. 2023 (ISCA). The others are not published
# and follow from the peak rates of train.host.device: v5e has 4 x 128 x 128 x 2
# FLOPs a cycle, v5p twice as many, v6e 4 x 256 x 256 x 2 (its page counts two
# such units, but the compiler expects more of a product than two could do), and
# so has a core of TPU7x.
GENERATIONS = {
  'v2': Generation('v2', 2, 2, 256, 350, 124, 7.48, 0.7),
  'v3': Generation('v3', 2, 2, 1024, 450, 164, 15.48, 0.94),
  'v4': Generation('v4', 3, 2, 4096, 1228, 300, 30.75, 1.05),
  'v5e': Generation('v5e', 2, 1, 256, 819, 200, 15.75, 1.5),
  'v5p': Generation('v5', 3, 2, 8192, 2765, 600, 95.74, 1.75),
  'v6e': Generation('v6e', 2, 1, 256, 1640, 448, 31.25, 1.75),
  'tpu7x': Generation('TPU7x', 3, 2, 9216, 3690, 300, 94.75, 2.2),
}
ALIASES = {'v5litepod': 'v5e'}


class Slice(NamedTuple):
  """A TPU slice: chips along each dimension, and JAX devices to compile for."""

  name: str
  chip: Generation
  layout: tuple[int, ...]
  devices: list[jax.Device]
  num_hosts: int

  @property
  def num_chips(self) -> int:
    """Number of chips; of v2, v3 and tpu7x each is two devices."""
    return math.prod(self.layout)

  @property
  def text(self) -> str:
    """Says what the name stands for."""
    return (
      f'{self.num_chips} chips ({"x".join(map(str, self.layout))}),'
      f' {len(self.devices)} devices, hosts: {self.num_hosts}'
    )

  @property
  def peak_tflops(self) -> float:
    """Dense bfloat16 TFLOP/s of a device."""
    return device.peak_of(self.devices[0].device_kind)

  @property
  def compiler(self) -> str:
    """The compiler and its version."""
    return f'libtpu {importlib.metadata.version("libtpu")}'


Machine = Slice | gpus.Gpus


def find(name: str) -> Machine:
  """Returns the slice or GPUs of a name: v5litepod-16, v5e:4x4, h100-8, ..."""
  if name in gpus.names():
    return gpus.find(name)
  generation, layout = parse(name)
  if importlib.util.find_spec('libtpu') is None:
    raise ValueError(
      "the TPU's compiler, libtpu, is missing: pip install -e '.[tpu]' brings"
      ' it, on any Linux machine'
    )
  # Slices of several hosts have four chips a host, and all but v5e and v6e.
  chips = math.prod(layout)
  bounds = {1: (1, 1, 1), 8: (2, 4, 1)}.get(chips, (2, 2, 1))
  if generation.layout_name not in ('v5e', 'v6e'):
    bounds = (2, 2, 1)
  options: dict[str, list[int] | str] = {'chips_per_host_bounds': list(bounds)}
  if generation.layout_name == 'v4':
    options['chip_config_name'] = 'megacore'  # one device a chip
  text = f'{generation.layout_name}:{"x".join(map(str, layout))}'
  try:
    devices = topologies.get_topology_desc(
      platform='tpu', topology_name=text, **options
    ).devices
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f'--topology {name}: {error}') from error
  per_host = math.prod(bounds)
  return Slice(name, generation, layout, devices, max(1, chips // per_host))


def parse(name: str) -> tuple[Generation, tuple[int, ...]]:
  """Returns generation and layout of a slice's name; ValueError if unknown."""
  match = re.fullmatch(r'(v\d+[a-z]*|tpu7x)(?:-(\d+)|:(\d+(?:x\d+)+))', name)
  kind = ALIASES.get(match[1], match[1]) if match else None
  if kind not in GENERATIONS:
    raise _unknown(name)
  generation = GENERATIONS[kind]
  if match[2]:
    if name not in names():
      raise _unknown(name)
    return generation, _layout(generation, int(match[2]))
  layout = tuple(map(int, match[3].split('x')))
  chips = math.prod(layout) if len(layout) == generation.dimensions else 0
  if not 0 < chips <= generation.most_chips:
    raise ValueError(
      f'--topology {name}: {kind} has {generation.dimensions} dimensions and at'
      f' most {generation.most_chips} chips, for example'
      f' {kind}:{"x".join(map(str, _layout(generation, 64)))}'
    )
  return generation, layout


def names() -> list[str]:
  """Returns the names of all slices, by accelerator type."""
  every = []
  for spelling in (*GENERATIONS, *ALIASES):
    kind = ALIASES.get(spelling, spelling)
    generation = GENERATIONS[kind]
    chips = 1 if kind in ('v5e', 'v6e') else 4
    while chips <= generation.most_chips:
      # Slices of v2 and v3 quadruple up to 8 x 8 chips, and double from there.
      skipped = kind in ('v2', 'v3') and chips in (8, 32)
      if chips != 2 and not skipped:
        every.append(f'{spelling}-{chips * generation.units_a_chip}')
      chips *= 2
  return every


def print_names() -> None:
  """Prints the names of all slices, a generation a line, and their layouts."""
  for spelling in (*GENERATIONS, *ALIASES):
    generation, _ = parse(next(n for n in names() if n.startswith(spelling)))
    numbers = [
      n.removeprefix(f'{spelling}-')
      for n in names()
      if n.startswith(f'{spelling}-')
    ]
    unit = 'chips' if generation.units_a_chip == 1 else 'cores, 2 a chip'
    print(f'{spelling}-N, N {unit}: {", ".join(numbers)}')
  for card, facts in gpus.CARDS.items():
    counts = ', '.join(map(str, gpus.COUNTS))
    print(f'{card}-N, N of {facts.product}: {counts}')
  print(
    'A layout of chips works as well: v5e:4x4, v5p:2x2x4. Several by commas.'
  )


def _layout(generation: Generation, number: int) -> tuple[int, ...]:
  """Returns the most even layout of a number of units, short sides first."""
  doublings = (number // generation.units_a_chip).bit_length() - 1
  dimensions = generation.dimensions
  if dimensions == 3 and doublings == 2:  # a single host is flat
    return (2, 2, 1)
  return tuple(2 ** ((doublings + i) // dimensions) for i in range(dimensions))


def _unknown(name: str) -> ValueError:
  kind, every = name.split('-')[0], [*names(), *gpus.names()]
  kin = [known for known in every if known.startswith(kind)]
  near = difflib.get_close_matches(name, kin, n=4, cutoff=0.5)
  near = near or difflib.get_close_matches(name, every, n=4, cutoff=0.75)
  if not re.search(r'\d', kind):  # 'tpu' is not the name of one generation
    near = []
  some = near or [
    'v3-8',
    'v4-32',
    'v5litepod-16',
    'v5p-32',
    'v6e-16',
    'tpu7x-8',
    'h100-8',
  ]
  return ValueError(
    f'--topology {name}: there is no such slice or GPU; did you mean'
    f' {" or ".join(some)}? A layout such as v5e:4x4 works as well'
  )
