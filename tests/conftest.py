"""Eight CPU devices, real data by SESAME_DATA, and small shared inputs."""

import os
import pathlib

# Before JAX is imported, here and in every child process.
os.environ['JAX_PLATFORMS'] = 'cpu'
_FLAG = '--xla_force_host_platform_device_count'
if _FLAG not in os.environ.get('XLA_FLAGS', ''):
  os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {_FLAG}=8'
os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'
os.environ['HF_HUB_OFFLINE'] = '1'

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(scope='session')
def sesame_data() -> pathlib.Path:
  """The folder of real data sets and fixtures; skips where there is none."""
  folder = os.environ.get('SESAME_DATA')
  if not folder:
    pytest.skip('SESAME_DATA names no folder of real data sets')
  return pathlib.Path(folder)


@pytest.fixture(autouse=True, scope='module')
def clear_caches():
  """Compiled programs of one module do not pile up in the next."""
  yield
  jax.clear_caches()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
  """With real data at hand nothing may be skipped."""
  report = yield
  if report.skipped and os.environ.get('SESAME_DATA'):
    report.outcome = 'failed'
    report.longrepr = f'skipped although SESAME_DATA is set: {report.longrepr}'
  return report
