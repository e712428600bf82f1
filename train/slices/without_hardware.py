"""Lets the compilers of TPUs and GPUs work on a machine without any."""

import os


def prepare() -> None:
  """Sets what the compilers read when they are loaded: call it before JAX is.

  The last two variables of the TPU's keep it from looking for a TPU, and from
  saying that none is there. A compilation of minutes is no fault here: XLA
  would report it as an error. What is compiled for absent hardware cannot be
  read back from a cache of programs.
  """
  for library in ('TF_CPP_MIN', 'TPU_MIN', 'TPU_STDERR'):
    os.environ.setdefault(f'{library}_LOG_LEVEL', '3')
  os.environ.update(
    JAX_PLATFORMS='cpu',
    JAX_ENABLE_COMPILATION_CACHE='false',
    TPU_SKIP_MDS_QUERY='1',
    ALLOW_MULTIPLE_LIBTPU_LOAD='1',
    TPU_WORKER_HOSTNAMES='localhost',
    TPU_ACCELERATOR_TYPE='v5litepod-1',
  )
