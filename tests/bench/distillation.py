r"""Distils a fine-tuned model into fewer layers, and compares the students.

A teacher of each task. For each seed three students with the layers that
`init.layers` names, by the same recipe in the same number of steps: 'alone' has
those of the weights and learns from the labels; 'begun' has those of the
teacher and learns from the labels; 'distilled' has those of the teacher and
learns from the teacher, too. Then the seconds of scoring dev, in turns.
`--beside` names a published small model, as `onnx_weights.py` makes one, that
is fine-tuned alone with the first seed; `--words` a file of word vectors, on
which a BiLSTM learns alone and from the teacher, by its own recipe.
What is finished in the workdirs is not repeated, and tasks that the output has
from other commands stay in it.

  python tests/bench/distillation.py --weights W --data glue \
    --tasks mrpc,stsb --seeds 3 --workdir runs/distillation \
    --output results/distillation_cpu.json
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from train.engine import sharding
from train.host import device, files
from train.host.console import say
from train.run import command, workdirs
from train.transfer import predictors, task_outputs

# As sesame/transfer of configs/tables fine-tunes the same weights.
RECIPE = (
  '--config.optim.name=adamw',
  '--config.optim.learning_rate=1e-4',
  '--config.train.count=rows',
  '--config.train.num_epochs=3.0',
  '--config.train.select=best',
  '--config.train.platform=cpu',
)
# Of the BiLSTM: 150 cells, as configs/tables trains such models on a CPU, on
# vectors of lower-cased words.
WORDS = (
  '--config.task.lower_words=True',
  '--config.model.lstm_dim=150',
  '--config.model.hidden_dim=256',
  '--config.task.max_length=64',
  '--config.train.global_batch=64',
  '--config.train.num_epochs=6.0',
  '--config.optim.learning_rate=1e-3',
  '--config.train.platform=cpu',
)
METRICS = {'mrpc': 'f1', 'stsb': 'spearman', 'sst2': 'accuracy'}


def commands_of(
  arguments: argparse.Namespace, task: str
) -> dict[str, list[str]]:
  """Returns name of a model -> its command, without seed and workdir."""
  weights = f'--config.init.weights={arguments.weights}'
  teacher = pathlib.Path(arguments.workdir, task, 'teacher')
  layers = f'--config.init.layers={arguments.layers}'

  def command_of(config: str, *own: str) -> list[str]:
    first = ['-m', 'train.main', '--config', f'{config}:task={task}']
    data = f'--config.data.source={arguments.data}'
    return [*first, data, *RECIPE, *arguments.set, *own]

  distilled = (
    f'--config.init.teacher={teacher}',
    f'--config.distill.temperature={arguments.temperature}',
    f'--config.distill.label_weight={arguments.label_weight}',
  )
  found = {
    'teacher': command_of('transfer', weights),
    'alone': command_of('transfer', weights, layers),
    'begun': command_of('transfer', f'--config.init.weights={teacher}', layers),
    'distilled': command_of('distill', *distilled, layers),
  }
  if arguments.beside:
    beside = f'--config.init.weights={arguments.beside}'
    found['beside, alone'] = command_of('transfer', beside)
  if arguments.words:
    model = f'task={task},model=bilstm_attention'
    begin = ('-m', 'train.main', '--config')
    own = [
      f'--config.task.word_vectors={arguments.words}',
      f'--config.data.source={arguments.data}',
      *WORDS,
      *arguments.set,
    ]
    found |= {
      'words, alone': [*begin, f'transfer:{model}', *own],
      'words, distilled': [*begin, f'distill:{model}', *distilled, *own],
    }
  return found


def train(ours: Sequence[str], workdir: pathlib.Path) -> Mapping[str, Any]:
  """Returns the results of a run, which is made unless it is finished."""
  if not (workdir / 'results.json').exists():
    say(f'{workdir}')
    with workdir.with_name(f'{workdir.name}.log').open('w') as log:
      subprocess.run(
        [sys.executable, *ours, f'--workdir={workdir}'],
        check=True,
        stdout=log,
        stderr=log,
      )
  return workdirs.read_results(workdir)


def seconds_of(workdirs_of: Mapping[str, pathlib.Path], repeats: int) -> dict:
  """Returns model -> the shortest seconds of all its dev set's logits."""
  runs = {}
  for name, workdir in workdirs_of.items():
    _, program, _ = predictors.open_member(workdir)
    split = program.open_splits(['dev'])['dev']
    runs[name] = program, program.load(workdir), split
  found: dict[str, list[float]] = {name: [] for name in runs}
  for repeat in range(repeats + 1):
    for name, (program, params, split) in runs.items():
      with sharding.scope(program.mesh, program.config.mesh.rules):
        begun = time.perf_counter()
        task_outputs.run_model(program, params, split)
        jax.block_until_ready(params)
      if repeat:  # the first time compiles
        found[name].append(time.perf_counter() - begun)
  return {name: min(values) for name, values in found.items()}


def measure(arguments: argparse.Namespace, task: str) -> dict[str, Any]:
  """Returns the figures of a task: scores by seed, and speeds."""
  ours, folder = commands_of(arguments, task), pathlib.Path(arguments.workdir)
  metric = f'eval/{task}/{METRICS[task]}'
  folder = folder / task
  folder.mkdir(parents=True, exist_ok=True)
  teacher = train(ours['teacher'], folder / 'teacher')
  scores = {name: [] for name in ours if name != 'teacher'}
  for seed in range(arguments.seeds):
    for name in scores:
      if seed and name == 'beside, alone':  # one, for comparison
        continue
      seeded = [*ours[name], f'--config.train.seed={seed}']
      results = train(seeded, folder / f'{name.replace(", ", "-")}-{seed}')
      scores[name].append(results['metrics'][metric])
  seconds = seconds_of(
    {'teacher': folder / 'teacher', 'student': folder / 'distilled-0'},
    arguments.repeats,
  )
  best = teacher['metrics'][metric]
  means = {name: statistics.fmean(values) for name, values in scores.items()}
  return {
    'command': f'python {shlex.join(sys.argv)}',
    'device': device.describe(),
    'revision': device.revision(),
    'metric': METRICS[task],
    'teacher': best,
    **scores,
    'mean': means,
    'deviation': {
      name: statistics.stdev(values) if len(values) > 1 else None
      for name, values in scores.items()
    },
    'kept': {name: value / best for name, value in means.items()},
    'seconds': seconds,
    'times as fast': seconds['teacher'] / seconds['student'],
    'commands': {
      name: f'python {shlex.join(words)}' for name, words in ours.items()
    },
  }


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(description=__doc__)
  add = parser.add_argument
  add('--weights', required=True, help='what the teacher begins with')
  add('--data', required=True, help="a folder of GLUE's sets")
  add('--tasks', default='mrpc,stsb', help=f'some of {", ".join(METRICS)}')
  add('--seeds', type=command.positive, default=3)
  add('--layers', default='every:2', help='init.layers of the students')
  add('--beside', help='a published small model, fine-tuned likewise')
  add('--words', help='word vectors of a BiLSTM, trained likewise')
  add('--temperature', type=float, default=2.0)
  add('--label_weight', type=float, default=0.5)
  add('--repeats', type=command.positive, default=5, help='of the timing')
  add('--set', action='append', default=[], help='--config.KEY=VALUE of all')
  add('--workdir', default='runs/distillation')
  add('--output', required=True)
  arguments = parser.parse_args()
  files.check_writable(arguments.output)
  output = pathlib.Path(arguments.output)
  found = json.loads(output.read_text()) if output.exists() else {}
  for task in arguments.tasks.split(','):
    found[task] = measure(arguments, task)
    files.write_atomically(output, json.dumps(found, indent=2) + '\n')
  say(f'The figures are in {arguments.output}')


if __name__ == '__main__':
  main()
