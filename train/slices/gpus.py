"""NVIDIA's GPUs by name, described for the compiler without the hardware."""

import importlib.metadata
import importlib.util
from typing import NamedTuple

import jax
from jax.experimental import topologies

from train.engine.memory import GIB
from train.host import device

COUNTS = (1, 2, 4, 8)  # GPUs of one machine
# Of a GPU's memory, what JAX takes at the start; XLA_PYTHON_CLIENT_MEM_FRACTION
# changes it.
SHARE = 0.75


class Card(NamedTuple):
  """A kind of GPU.

  Attributes:
    product: the vendor's name, which JAX gives as the kind of device.
    cores: streaming multiprocessors.
    units: float32 units of a core.
    threads: of a core at most.
    shared: bytes of memory that a core's threads share.
    shared_a_block: of these, what one block may ask for.
    memory_gbps: memory bandwidth, GB/s.
    cache: bytes of the L2 cache.
    clock_ghz: the highest of its cores.
    memory: bytes.
    links_gbps: rate at which it sends to the others of a machine, GB/s: NVLink
      one way, or PCIe.
    capability: compute capability.
    accelerated: whether that has features of this generation alone.
  """

  product: str
  cores: int
  units: int
  threads: int
  shared: int
  shared_a_block: int
  memory_gbps: float
  cache: int
  clock_ghz: float
  memory: int
  links_gbps: float
  capability: tuple[int, int]
  accelerated: bool

  @property
  def usable_gib(self) -> float:
    """Memory that JAX takes by default."""
    return SHARE * self.memory / GIB


# XLA's descriptions of these GPUs (xla/backends/gpu/target_config/specs); links
# from the vendor's data sheets, recalled.
CARDS = {
  'h100': Card(
    product='NVIDIA H100 80GB HBM3',
    cores=132,
    units=128,
    threads=2048,
    shared=233_472,
    shared_a_block=232_448,
    memory_gbps=3352.32,
    cache=52_428_800,
    clock_ghz=1.98,
    memory=84_942_979_072,
    links_gbps=450,
    capability=(9, 0),
    accelerated=True,
  ),
  'h200': Card(
    product='NVIDIA H200',
    cores=132,
    units=128,
    threads=2048,
    shared=233_472,
    shared_a_block=232_448,
    memory_gbps=4800,
    cache=52_428_800,
    clock_ghz=1.98,
    memory=151_397_597_184,
    links_gbps=450,
    capability=(9, 0),
    accelerated=True,
  ),
  'a100': Card(
    product='NVIDIA A100-SXM4-80GB',
    cores=108,
    units=64,
    threads=2048,
    shared=167_936,
    shared_a_block=166_912,
    memory_gbps=2039.04,
    cache=41_943_040,
    clock_ghz=1.41,
    memory=85_100_068_864,
    links_gbps=300,
    capability=(8, 0),
    accelerated=False,
  ),
  'b200': Card(
    product='NVIDIA B200',
    cores=148,
    units=128,
    threads=2048,
    shared=233_472,
    shared_a_block=232_448,
    memory_gbps=7672.32,
    cache=132_644_864,
    clock_ghz=1.965,
    memory=191_514_411_008,
    links_gbps=900,
    capability=(10, 0),
    accelerated=True,
  ),
  'rtx6000pro': Card(
    product='NVIDIA RTX PRO 6000 Blackwell',
    cores=188,
    units=128,
    threads=1536,
    shared=131_072,
    shared_a_block=101_376,
    memory_gbps=1792,
    cache=134_217_728,
    clock_ghz=2.6,
    memory=103_079_215_104,
    links_gbps=63,
    capability=(12, 0),
    accelerated=False,
  ),
  'a6000': Card(
    product='NVIDIA RTX A6000',
    cores=84,
    units=128,
    threads=1536,
    shared=102_400,
    shared_a_block=101_376,
    memory_gbps=768.096,
    cache=6_291_456,
    clock_ghz=1.8,
    memory=51_041_271_808,
    links_gbps=31,
    capability=(8, 6),
    accelerated=False,
  ),
}


class Gpus(NamedTuple):
  """GPUs of one machine, and JAX devices to compile for."""

  name: str
  chip: Card
  devices: list[jax.Device]
  num_hosts: int = 1

  @property
  def num_chips(self) -> int:
    """Number of GPUs."""
    return len(self.devices)

  @property
  def text(self) -> str:
    """Says what the name stands for."""
    return f'{self.num_chips} x {self.chip.product}, one machine'

  @property
  def peak_tflops(self) -> float:
    """Dense bfloat16 TFLOP/s of a GPU."""
    return device.peak_of(self.chip.product)

  @property
  def compiler(self) -> str:
    """The compiler and its version."""
    return f'CUDA plugin {importlib.metadata.version("jax-cuda13-plugin")}'


def names() -> list[str]:
  """Returns the names of all machines, a card and a number of them."""
  return [f'{card}-{count}' for card in CARDS for count in COUNTS]


def has_compiler() -> bool:
  """Returns whether JAX's plugin for CUDA, which compiles, is installed."""
  plugins = importlib.util.find_spec('jax_plugins')
  name = 'jax_plugins.xla_cuda13'
  return plugins is not None and importlib.util.find_spec(name) is not None


def find(name: str) -> Gpus:
  """Returns the GPUs of a name of `names()`."""
  if not has_compiler():
    raise ValueError(
      "the GPU's compiler is missing: pip install -e '.[cuda]' brings it, on"
      ' any Linux machine'
    )
  kind, count = name.split('-')
  card = CARDS[kind]
  topology = f'1x1x{count}'  # hosts, processes of each, GPUs of each
  try:
    devices = topologies.get_topology_desc(
      topology_name=topology,
      platform='cuda',
      target_config=_target(card),
      topology=topology,
    ).devices
  except jax.errors.JaxRuntimeError as error:
    raise ValueError(f'--topology {name}: {error}') from error
  return Gpus(name, card, devices)


def _target(card: Card) -> str:
  """Returns XLA's text proto of a GPU (GpuTargetConfigProto)."""
  major, minor = card.capability
  features = 'ACCELERATED_FEATURES' if card.accelerated else 'NONE'
  return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {card.shared}
  threads_per_core_limit: {card.threads}
  core_count: {card.cores}
  fpus_per_core: {card.units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {round(card.memory_gbps * 1e9)}
  l2_cache_size: {card.cache}
  clock_rate_ghz: {card.clock_ghz}
  device_memory_size: {card.memory}
  shared_memory_per_block_optin: {card.shared_a_block}
  cuda_compute_capability {{
    major: {major} minor: {minor} feature_extension: {features}
  }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {major}.{minor}"
  device_address_bits: 64
  name: "{card.product}"
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.12.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 patch: 0 }}
device_description_str: "{card.product}"
"""
