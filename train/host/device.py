"""The devices of a run: checks, compiler options, peak rate and MFU."""

import math
import os
import pathlib
import subprocess
import time

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from train.host import chips

# Dense bfloat16 TFLOP/s of one JAX device, from the vendors' data sheets (those
# of B200 and the RTX cards recalled). A v2 or v3 device is a core, half a chip;
# so is one of TPU7x (Ironwood).
PEAK_TFLOPS = {
  'TPU v2': 22.5,
  'TPU v3': 61.5,
  'TPU v4': 275,
  'TPU v5 lite': 197,
  'TPU v5e': 197,
  'TPU v5': 459,
  'TPU v5p': 459,
  'TPU v6 lite': 918,
  'TPU v6e': 918,
  'TPU7x': 1153.5,
  'NVIDIA A100': 312,
  'NVIDIA H100': 989,
  'NVIDIA H200': 989,
  'NVIDIA B200': 2250,
  'NVIDIA RTX PRO 6000 Blackwell': 503.8,
  'NVIDIA RTX A6000': 154.8,
}


def has_platform(expected: str) -> bool:
  """Returns whether JAX finds a platform; it always finds 'auto'."""
  try:
    return expected in ('auto', jax.default_backend())
  except RuntimeError:  # JAX_PLATFORMS names a missing device
    return False


def check_platform(expected: str) -> None:
  """Checks JAX's platform: without a driver it would fall back to the CPU.

  'auto' takes what JAX finds.
  """
  try:
    found = jax.default_backend()
  except RuntimeError as error:  # JAX_PLATFORMS names a missing device
    raise ValueError(
      f'train.platform={expected!r}, but JAX finds no device'
      f' (JAX_PLATFORMS={os.environ.get("JAX_PLATFORMS")!r}): {error}'
    ) from error
  if expected not in ('auto', found):
    extra = {'gpu': 'cuda', 'tpu': 'tpu'}.get(expected)
    install = (
      f" Install the drivers and pip install -e '.[{extra}]', or"
      if extra
      else ''
    )
    raise ValueError(
      f'train.platform={expected!r}, but JAX found {found!r}'
      f' ({jax.devices()[0].device_kind}).{install} pass'
      f' --config.train.platform={found} to train there'
    )


def describe_devices(dtype: str) -> str:
  """Returns number and kind of the devices, and what would be faster."""
  first = jax.devices()[0]
  text = f'{jax.device_count()} x {first.device_kind}'
  if first.platform == 'cpu' and not jax.config.jax_platforms:
    for extra, found in (('tpu', chips.of_tpu()), ('cuda', chips.of_nvidia())):
      if found:
        text += f" (JAX does not use {found[0]}: pip install -e '.[{extra}]')"
  capability = getattr(first, 'compute_capability', None)
  if first.platform == 'gpu' and dtype == 'bfloat16' and capability:
    from models.transformer.flash_attention import OLDEST

    if float(capability) < OLDEST:
      text += (
        f', of compute capability {capability}: no units for bfloat16 (from'
        f' {OLDEST} on); --config.model.dtype=float32 is as fast'
      )
  return text


DETERMINISTIC_FLAG = '--xla_gpu_deterministic_ops=true'


def check_deterministic() -> None:
  """Checks that the user set XLA's flag for deterministic kernels on a GPU."""
  flags = os.environ.get('XLA_FLAGS', '')
  if jax.default_backend() == 'gpu' and DETERMINISTIC_FLAG not in flags:
    raise ValueError(
      'train.deterministic needs XLA_FLAGS to hold'
      f' {DETERMINISTIC_FLAG} on a GPU; it holds {flags!r}'
    )


def enable_compilation_cache() -> None:
  """Keeps compiled programs in ~/.cache/sesame/xla, unless JAX has a folder."""
  if not os.environ.get('JAX_COMPILATION_CACHE_DIR'):
    home = os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache'))
    folder = os.path.join(home, 'sesame', 'xla')
    jax.config.update('jax_compilation_cache_dir', folder)


def compiler_options(mesh: Mesh) -> dict[str, str] | None:
  """Returns XLA's options for a step on a mesh; None: its defaults.

  The CPU default orders a program for concurrency (jax 0.10): fine-tuning
  MiniLM, 16 x 384, takes 2.0 instead of 1.4 GiB then, and is no faster. The
  TPU default multiplies a gathered parameter share by share where it is large;
  one product of the whole is faster, unless a mesh splits the activations too.
  """
  platform = mesh.devices.flat[0].platform
  if platform == 'tpu' and mesh.shape.get('tensor', 1) == 1:
    return {'xla_jf_spmd_threshold_for_windowed_einsum_mib': '1000000'}
  if platform != 'cpu':
    return None
  return {'xla_cpu_scheduler_type': 'CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED'}


def peak_tflops(override: float | None = None) -> float | None:
  """Returns the peak matrix rate of one device in TFLOP/s, or `override`.

  Accelerators are looked up in PEAK_TFLOPS, None if unknown. A CPU's rate is
  measured: a float32 1024^3 product, divided over the host's JAX devices.
  """
  if override is not None:
    return override
  device = jax.devices()[0]
  if device.platform == 'cpu':
    return _measure_cpu() / jax.local_device_count()
  return peak_of(device.device_kind)


def peak_of(device_kind: str) -> float | None:
  """Returns the TFLOP/s of a kind of accelerator by PEAK_TFLOPS, or None."""
  matches = [kind for kind in PEAK_TFLOPS if device_kind.startswith(kind)]
  return PEAK_TFLOPS[max(matches, key=len)] if matches else None


def _measure_cpu() -> float:
  size = 1024
  device = jax.local_devices()[0]
  matrix = jax.device_put(jnp.ones((size, size), jnp.float32), device)
  product = jax.jit(lambda a: a @ a)
  product(matrix).block_until_ready()
  best = float('inf')
  for _ in range(20):
    start = time.perf_counter()
    product(matrix).block_until_ready()
    best = min(best, time.perf_counter() - start)
  return 2 * size**3 / best / 1e12


def model_flops_utilisation(
  flops: float, seconds: float, peak: float | None, num_devices: int
) -> float:
  """Returns MFU: the model's FLOPs over the FLOPs possible in `seconds`.

  `flops` are of all devices; `peak` is TFLOP/s of one device, None gives NaN.
  """
  if peak is None:
    return math.nan
  return flops / (seconds * peak * 1e12 * num_devices)


def describe() -> str:
  """Returns the number and the kind of the devices as text."""
  kind: str = jax.devices()[0].device_kind
  return f'{jax.device_count()} x {kind} ({jax.default_backend()})'


def revision() -> str:
  """Returns the code's git revision, with '+' if the code was changed since."""
  here = pathlib.Path(__file__).parent

  def git(*arguments: str) -> str:
    return subprocess.run(
      ['git', *arguments], cwd=here, capture_output=True, text=True, check=True
    ).stdout.strip()

  try:
    changed = git('status', '--porcelain', '--untracked-files=no')
    return git('rev-parse', '--short=12', 'HEAD') + ('+' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return 'unknown'
