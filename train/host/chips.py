"""The accelerators that Linux shows, without asking any library for them."""

import glob


def of_tpu() -> list[str]:
  """Returns the device files of this host's TPU chips."""
  return glob.glob('/dev/accel*') + glob.glob('/dev/vfio/[0-9]*')


def of_nvidia() -> list[str]:
  """Returns the device files of this host's NVIDIA GPUs."""
  return glob.glob('/dev/nvidia[0-9]*')
