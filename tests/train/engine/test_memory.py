"""Memory that a run needs, planned, refused and given back."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
from jax.sharding import NamedSharding, PartitionSpec
from launch import environment

from train.engine import memory, sharding
from train.host import huge_pages


@pytest.fixture(autouse=True)
def quiet_libraries(monkeypatch):
  monkeypatch.setattr(memory, 'RUNTIME_BYTES', 0)


@pytest.fixture
def mesh(small_config):
  return sharding.make_mesh(small_config().mesh, jax.devices()[:1])


def make_plan(mesh, num_later=0):
  place = NamedSharding(mesh, PartitionSpec())
  shapes = {'x': jax.ShapeDtypeStruct((2**20,), jnp.float32, sharding=place)}
  programs = [
    memory.CompiledProgram('a step', 8 * 2**20, 2**20, 'Pass a smaller one'),
    memory.CompiledProgram('a score', 2**20, 2**19, 'Pass nothing'),
  ]
  return memory.plan(
    shapes, programs, mesh, loader='plain', num_later=num_later
  )


def test_what_is_to_come_is_added_up(mesh):
  plan = make_plan(mesh, num_later=3)
  assert plan.device_bytes == (4 + 8) * 2**20
  assert plan.coming_bytes == (4 + 8 + 2 + 3 * 0.75) * 2**20


def test_too_little_is_refused_with_the_remedy(mesh, monkeypatch):
  plan = make_plan(mesh)
  monkeypatch.setattr(memory, 'available_bytes', lambda: 14 * 2**20)
  memory.check_memory(plan)
  monkeypatch.setattr(memory, 'available_bytes', lambda: 13 * 2**20)
  message = (
    'needs 14.0 MiB of memory, this machine has left 13.0 MiB:'
    ' .*4.0 MiB, a step 8.0 MiB. Pass a smaller one'
  )
  with pytest.raises(ValueError, match=message):
    memory.check_memory(plan)
  # An accelerator has memory of its own.
  plan = plan._replace(host=False)
  memory.check_memory(plan)
  monkeypatch.setattr(memory, 'device_limit', lambda: 11 * 2**20)
  with pytest.raises(ValueError, match='a device has 11.0 MiB'):
    memory.check_memory(plan)


@pytest.mark.usefixtures('one_device')
def test_a_pre_training_is_refused_before_it_writes(
  small_config, tmp_path, monkeypatch
):
  monkeypatch.setattr(memory, 'available_bytes', lambda: 2**20)
  for dry_run in (True, False):
    with pytest.raises(ValueError, match='--config.train.micro_batches=2'):
      runs.train(small_config(), tmp_path / 'run', dry_run=dry_run)
    assert not (tmp_path / 'run').exists()


def test_control_groups_limit_what_is_there(tmp_path):
  entries, root = tmp_path / 'entries', tmp_path / 'groups'
  entries.write_text('0::/a/b\n')
  for folder, limit, used in (
    (root / 'a', 1000, 700),
    (root / 'a/b', 'max', 9),
  ):
    folder.mkdir(parents=True)
    (folder / 'memory.max').write_text(f'{limit}\n')
    (folder / 'memory.current').write_text(f'{used}\n')
    (folder / 'memory.stat').write_text(
      'anon 1\nactive_file 20\ninactive_file 30\n'
    )
  assert list(memory._group_limits(str(entries), str(root))) == [350]
  assert not list(memory._group_limits(str(root / 'none'), str(root)))


def test_a_compiled_step_is_found_by_its_call(mesh):
  """What is planned is not compiled again."""
  place = NamedSharding(mesh, PartitionSpec())
  step = jax.jit(lambda x: (x @ x, x.sum()), out_shardings=(place, place))
  events = []

  def listen(event, seconds, **_):
    if event == '/jax/core/compile/backend_compile_duration':
      events.append(event)

  x = jax.device_put(np.ones((64, 64), np.float32), place)
  shape = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
  jax.monitoring.register_event_duration_secs_listener(listen)
  program = memory.compile_program('a step', '', step.lower(shape), 0)
  assert len(events) == 1
  assert program.temporary >= 64 * 64 * 4  # its output
  jax.block_until_ready(step(x))
  assert len(events) == 1


HEAP = """
from train.host import huge_pages
huge_pages.restart_with()
import numpy as np, psutil
heap = huge_pages.Heap({slack})
heap.bound()
begin = psutil.Process().memory_info().rss
small = []
for size in (60, 80, 70, 100):  # each a little more than the hole before
  large = np.ones(size * 2**17)
  small.append(np.ones(3000))
  del large
  heap.bound()
print((psutil.Process().memory_info().rss - begin) // 2**20)
"""


@pytest.mark.skipif(sys.platform != 'linux', reason="the heap is glibc's")
def test_the_heap_keeps_no_more_than_its_slack():
  kept = {}
  for slack in (20 * 2**20, 2**40):
    done = subprocess.run(
      [sys.executable, '-c', HEAP.format(slack=slack)],
      env={
        name: value
        for name, value in environment().items()
        if name != huge_pages.VARIABLE
      },
      capture_output=True,
      text=True,
      check=True,
    )
    kept[slack] = int(done.stdout)
  assert kept[20 * 2**20] <= 25
  assert kept[2**40] >= 90
