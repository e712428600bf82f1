"""The way from the command to the loss."""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest
import small_tasks
from launch import environment

from train.run import settings

# Functions of the programs below.
TOOLS = """
import pathlib, runpy, sys, traceback
import train

root = str(pathlib.Path(train.__file__).parents[1])
OURS = ('configs', 'data', 'models', 'train')

def print_frames():
  for frame in traceback.extract_stack()[:-2]:
    # An environment may lie in the clone.
    is_ours = 'site-packages' not in frame.filename
    if is_ours and frame.filename.startswith(root):
      print('FRAME', frame.filename.removeprefix(root), frame.name)

def print_loaded():
  ours = [
    module.__file__ for name, module in sys.modules.items()
    if name.partition('.')[0] in OURS
    and getattr(module, '__file__', None)
    and not module.__file__.endswith('__init__.py')
  ]
  lines = sum(len(open(file).readlines()) for file in ours)
  print('LOADED', len(ours), lines)

def run():
  sys.argv = ['train.main', *sys.argv[1:]]
  runpy.run_module('train.main', run_name='__main__', alter_sys=True)
"""
# Runs the command, and ends it where the loss is first computed.
PROGRAM = f"""
{TOOLS}
from train.architectures import bert

def stop(*_, **__):
  print_frames()
  print_loaded()
  sys.exit(0)

bert.MaskedTokens.losses = stop
run()
"""
# Runs a pre-training up to its curves, and prints which libraries are loaded.
WHOLE = f"""
{TOOLS}
from train.run import curves

def stop(*_, **__):
  names = 'google.cloud.storage matplotlib pandas sklearn torch transformers'
  print('LOADED', *(name for name in names.split() if name in sys.modules))
  sys.exit(0)

curves.draw_curves = stop
run()
"""
# Runs a fine-tuning. At its first loss it prints the way there, and the records
# of functions that its job leads to: objects of ours that hold functions, or
# whose methods replace those of a class of ours, by the name of that class.
# Splits, tokenizers and the parts of a declaration are what examples are read
# with, and not on the way.
TUNING = f"""
{TOOLS}
import functools, types
from flax import linen as nn
from data.tasks.examples import Task
from train.transfer import task_losses
from train.transfer.task_data import Split

def is_ours(kind):
  name = kind.__module__
  return name.partition('.')[0] in OURS and not name.startswith('data.vocab')

def parts_of(value):
  if isinstance(value, functools.partial):
    return [value.func, *value.args, *value.keywords.values()]
  if isinstance(value, types.MethodType):
    return [value.__self__]
  if isinstance(value, types.FunctionType):
    return [cell.cell_contents for cell in value.__closure__ or ()]
  if hasattr(value, '__wrapped__'):  # jitted
    return [value.__wrapped__]
  if isinstance(value, dict | types.MappingProxyType):
    return [*value.values()]
  if isinstance(value, list | tuple):
    return [*value]
  return [*vars(value).values()] if is_ours(type(value)) else []

def print_records(root):
  names, seen, todo = set(), set(), [root]
  while todo:
    value = todo.pop()
    if id(value) in seen or isinstance(value, nn.Module | Split):
      continue
    seen.add(id(value))
    is_class = isinstance(value, type)  # as kinds are
    parts = [] if is_class else parts_of(value)
    lines = value.__mro__ if is_class else type(value).__mro__
    bases = [base for base in lines if is_ours(base)]
    if bases and (len(bases) > 1 or any(map(callable, parts))):
      names.add(bases[-1].__name__)
    if not isinstance(value, Task):
      todo += parts
  print('RECORDS', *sorted(names))

def first(*arguments):
  task_losses.LOSSES['classes'] = losses
  frame = sys._getframe()
  while 'job' not in frame.f_locals:
    frame = frame.f_back
  print_records(frame.f_locals['job'])
  print_frames()
  return losses(*arguments)

losses = task_losses.LOSSES['classes']
task_losses.LOSSES['classes'] = first
run()
print_loaded()
"""


def run_program(program, *arguments):
  """Returns the lines that it prints, split: name -> lines."""
  done = subprocess.run(
    [sys.executable, '-c', program, *map(str, arguments)],
    env=environment(),
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert done.returncode == 0, done.stderr
  lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
  return {
    name: [line[1:] for line in lines if line[0] == name]
    for name in ('RECORDS', 'FRAME', 'LOADED')
  }


def test_few_frames_lie_between_the_command_and_the_loss(small_store, tmp_path):
  found = run_program(
    PROGRAM,
    '--config',
    'bert_tiny',
    f'--config.data.folder={small_store}',
    f'--workdir={tmp_path / "run"}',
  )
  # What pre-training a BERT loads of ours: files, lines.
  ((files, lines),) = found['LOADED']
  assert int(files) <= 100 and int(lines) <= 20_000, found
  # The loss itself is the eighth.
  assert 0 < len(found['FRAME']) <= 7, found
  assert len({file for file, _ in found['FRAME']}) <= 4, found


def test_a_run_loads_no_library_that_it_does_not_need(small_store, tmp_path):
  """Neither at the start nor for steps, scores, samples and checkpoints."""
  found = run_program(
    WHOLE,
    '--config',
    'bert_tiny',
    f'--config.data.folder={small_store}',
    '--config.train.phases=((2, 32, 8, "continue"),)',
    '--config.optim.warmup_steps=1',
    '--config.eval.max_windows=8',
    f'--workdir={tmp_path / "run"}',
  )
  assert found['LOADED'] == [[]]


@pytest.fixture(scope='module')
def tuned(small_store, tmp_path_factory):
  """What a fine-tuning prints, of sentences of two classes as SST-2."""
  folder = tmp_path_factory.mktemp('tuned')
  small_tasks.write_sst2(folder / 'SST-2')
  return run_program(
    TUNING,
    '--config=transfer:task=sst2,model=bert-tiny',
    f'--config.data.source={folder}',
    f'--config.data.tokenizer={small_store}',
    '--config.train.platform=cpu',
    '--config.train.steps=2',
    '--config.task.max_length=16',
    f'--workdir={folder / "run"}',
  )


def test_few_records_lie_between_the_command_and_the_loss_of_a_task(tuned):
  """The model's family, the job, the task, its kind, and the task's program."""
  (names,) = tuned['RECORDS']
  assert names == ['Architecture', 'Job', 'Kind', 'Objective', 'Task']


def test_few_frames_lie_between_the_command_and_the_loss_of_a_task(tuned):
  assert 0 < len(tuned['FRAME']) <= 9, tuned
  assert len({file for file, _ in tuned['FRAME']}) <= 5, tuned


def test_a_fine_tuning_loads_few_files(tuned):
  ((files, lines),) = tuned['LOADED']
  assert int(files) <= 130 and int(lines) <= 27_000, tuned


@pytest.mark.slow
@pytest.mark.parametrize('errors', ['>/dev/full', '>&-'])
def test_a_run_without_a_log_goes_on(
  errors, small_store, write_config, tmp_path
):
  """A full disk of the log, and a standard error that was closed."""
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {
      'data.folder': str(small_store),
      'train.phases': ((2, 32, 8, 'continue'),),
      'eval.max_windows': 8,
    },
  )
  command = [
    sys.executable,
    '-m',
    'train.main',
    '--config',
    write_config(config),
    f'--workdir={tmp_path / "run"}',
  ]
  done = subprocess.run(
    ['bash', '-c', f'{shlex.join(map(str, command))} 2{errors}'],
    env=environment() | {'PYTHONPATH': os.environ['PYTHONPATH']},
    cwd=pathlib.Path(__file__).parents[2],
    timeout=400,
  )
  assert done.returncode == 0
  results = json.loads((tmp_path / 'run/results.json').read_text())
  assert results['stderr']['lost_writes'] > 2


def test_a_dry_run_plans_for_devices_that_are_not_here(small_store, tmp_path):
  """A launch of a slice is checked on a laptop, without compiling."""
  done = subprocess.run(
    [
      *(sys.executable, '-m', 'train.main', '--config', 'bert_base'),
      f'--config.data.folder={small_store}',
      '--config.mesh.fsdp=16',
      '--config.train.phases=((9, 128, 16, "continue"),)',
      '--config.optim.warmup_steps=2',
      '--dry_run',
      f'--workdir={tmp_path / "run"}',
    ],
    env=environment() | {'PYTHONPATH': os.environ['PYTHONPATH']},
    cwd=pathlib.Path(__file__).parents[2],
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert done.returncode == 0, done.stderr
  assert '12 layers of 768' in done.stdout
  assert "train.platform='tpu' is not here: the settings" in done.stderr
  assert 'train.preflight --topology v5litepod-16 with' in done.stderr
  assert 'in all' not in done.stdout  # no memory without a program
  assert not (tmp_path / 'run').exists()
