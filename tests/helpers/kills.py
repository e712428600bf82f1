"""Kills training at drawn moments, starts it again, and compares the ends.

python tests/helpers/kills.py --kills 20 --terms 10 --output FILE draws moments,
kills runs of one and of two processes there, starts each again by the same
command until it ends, and compares what it leaves with an uninterrupted run.
"""

import argparse
import collections
import json
import os
import pathlib
import pydoc_data.topics
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, NamedTuple

import launch

MOMENTS = (
  'start-up',  # before the first step
  'mid-epoch',
  'epoch end',
  'accumulating',  # a step of two micro-batches has just begun
  'evaluation',
  'save',  # which goes on beside the training
)
START_UP = (('plan', 'print_plan'), ('metrics', 'MetricsWriter'))
STEPS = 50
BATCH = 16
LIMIT_SECONDS = 600  # of a run, on a slow and busy machine
# An abandoned process must end long before; far above what a busy machine
# delays a heartbeat by.
HEARTBEAT_SECONDS = 40


class Kill(NamedTuple):
  """One drawn kill.

  Attributes:
    signal: SIGKILL or SIGTERM.
    processes: how many the run has.
    victim: which of them gets the signal.
    moment: one of MOMENTS.
    count: the how manieth chance to strike is taken: steps since the start,
      batches of an evaluation.
    delay: seconds from there to the signal.
  """

  signal: str
  processes: int
  victim: int
  moment: str
  count: int
  delay: float


def draw(kills: int, terms: int, rng: random.Random) -> list[Kill]:
  """Returns so many SIGKILLs and SIGTERMs, every moment in turn."""
  drawn = []
  for name, number in (('SIGKILL', kills), ('SIGTERM', terms)):
    moments: list[str] = []
    while len(moments) < number:
      moments += rng.sample(MOMENTS, len(MOMENTS))
    for i, moment in enumerate(moments[:number]):
      processes = 1 + i % 2
      drawn.append(
        Kill(
          signal=name,
          processes=processes,
          victim=rng.randrange(processes),
          moment=moment,
          count=rng.randrange(1, 13),
          delay=rng.choice((0.0, rng.uniform(0, 0.05))),
        )
      )
  rng.shuffle(drawn)
  return drawn


def child(arguments: list[str]) -> None:
  """Trains by train.main with these arguments, and strikes as KILL says."""
  from train import main
  from train.engine import evaluate
  from train.pretrain import plan
  from train.run import checkpoint, ledger, metrics

  sys.argv = ['train.main', *arguments]
  kill = Kill(*json.loads(os.environ['KILL'])) if 'KILL' in os.environ else None
  steps_per_epoch = int(os.environ['STEPS_PER_EPOCH'])

  def strike(delay: float = 0.0) -> None:
    if delay:  # the training goes on until then
      threading.Timer(delay, strike).start()
    else:
      os.kill(os.getpid(), getattr(signal, kill.signal))

  def wrap(owner: Any, name: str, around: Any) -> None:
    inner = getattr(owner, name)
    setattr(owner, name, lambda *a, **k: around(inner, *a, **k))

  chances = 0

  def at_start(inner, *a, **k):
    result = inner(*a, **k)
    strike()
    return result

  def at_step(inner, self, step, *rest):
    nonlocal chances
    chances += 1
    if kill.moment == 'epoch end':
      if step % steps_per_epoch == 0 and chances:
        strike()
    elif chances == kill.count:
      strike(kill.delay if kill.moment == 'mid-epoch' else 0.0)
    return inner(self, step, *rest)

  def at_evaluation(inner, eval_step, params, batches, *a, **k):
    def struck():
      for i, batch in enumerate(batches):
        if i == kill.count % 2:
          strike(kill.delay)
        yield batch

    return inner(eval_step, params, struck(), *a, **k)

  def at_save(inner, *a, **k):
    strike(kill.delay + 0.001)
    return inner(*a, **k)

  if kill is not None:
    if kill.moment == 'start-up':
      module, name = START_UP[kill.count % 2]
      wrap({'plan': plan, 'metrics': metrics}[module], name, at_start)
    elif kill.moment == 'evaluation':
      wrap(evaluate, 'evaluate', at_evaluation)
    elif kill.moment == 'save':
      wrap(checkpoint.Checkpoints, 'save', at_save)
    else:
      wrap(ledger.Ledger, 'count', at_step)
  main.main()


class Harness:
  """Runs of one config, killed and not.

  Attributes:
    folder: where stores, configs and workdirs go.
    kept: the newest first; what each kill did, as rows of a report.
  """

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self.rows: list[dict[str, Any]] = []
    self._whole: dict[int, dict] = {}
    self._workdirs: dict[int, int] = collections.Counter()
    self._write_inputs()

  def _write_inputs(self) -> None:
    """Builds a store of some twenty batches, and the configs of the runs."""
    from data.examples import pairs
    from data.store import build, corpus
    from train.run import settings

    topics = sorted(pydoc_data.topics.topics.items())[:5]
    text = self.folder / 'text.txt'
    text.write_text('\n'.join(f'== {name}\n{body}\n' for name, body in topics))
    store = self.folder / 'store'
    build.build_store(
      str(text),
      'train:wordpiece:400',
      store,
      document_break='== .*',
      progress=False,
    )
    windows = pairs.Examples(
      corpus.open_store(store), 32, held_out=False
    ).num_windows
    self._steps_per_epoch = -(-windows // BATCH)
    assert 8 < self._steps_per_epoch < STEPS / 2, self._steps_per_epoch
    for number, loader in ((1, 'tf'), (2, 'plain')):
      overrides = {
        'model.num_layers': 2,
        'model.embed_dim': 32,
        'model.num_heads': 2,
        'model.mlp_dim': 64,
        'model.max_length': 32,
        'model.dropout_rate': 0.1,
        'model.attention_dropout_rate': 0.1,
        'data.folder': str(store),
        'data.source': str(text),
        'data.tokenizer': 'train:wordpiece:400',
        'data.document_break': '== .*',
        'data.loader': loader,
        'train.phases': ((STEPS, 32, BATCH, 'continue'),),
        'train.micro_batches': 2,
        'train.log_every': 5,
        'train.eval_every': 15,
        'train.checkpoint_every': 10,
        'optim.warmup_steps': 5,
        'eval.global_batch': 16,
        'eval.max_windows': 48,
        'eval.draws': 1,
      }
      config = settings.with_overrides(
        settings.load_config('bert_tiny'), overrides
      )
      (self.folder / f'config{number}.py').write_text(
        'from configs import base\n\n\n'
        'def get_config():\n'
        '  config = base.get_config()\n'
        f'  config.update_from_flattened_dict({settings.flatten(config)!r})\n'
        '  return config.lock()\n'
      )

  def start(
    self, number: int, workdir: str, kill: Kill | None = None, *flags: str
  ) -> list[subprocess.Popen]:
    """Starts a run's processes; standard error goes to files."""
    coordinator = f'localhost:{launch.free_port()}'
    children = []
    for i in range(number):
      environment = launch.environment() | {
        'JAX_PLATFORMS': 'cpu',
        'STEPS_PER_EPOCH': str(self._steps_per_epoch),
      }
      if kill is not None and kill.victim == i:
        environment['KILL'] = json.dumps(kill)
      # A relative workdir, as the default is.
      command = [sys.executable, str(pathlib.Path(__file__)), 'child']
      command += ['--config', f'config{number}.py', '--workdir', workdir]
      if number > 1:
        command += [
          f'--coordinator={coordinator}',
          f'--num_processes={number}',
          f'--process_id={i}',
          f'--heartbeat_seconds={HEARTBEAT_SECONDS}',
        ]
      with open(self.errors(i), 'w') as errors:
        children.append(
          subprocess.Popen(
            command + list(flags),
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
          )
        )
    return children

  def errors(self, process: int) -> pathlib.Path:
    """Returns the file of the newest run's standard error."""
    return self.folder / f'errors{process}.txt'

  def end(self, children: list[subprocess.Popen]) -> tuple[list[int], float]:
    """Waits for them; returns the exit codes, and seconds from first to last.

    Raises:
      TimeoutError: if one does not end by itself.
    """
    deadline, ends = time.monotonic() + LIMIT_SECONDS, {}
    try:
      while len(ends) < len(children):
        for i, process in enumerate(children):
          if process.poll() is not None:
            ends.setdefault(i, time.monotonic())
        if time.monotonic() > deadline:
          raise TimeoutError(self.tail())
        time.sleep(0.02)
    finally:
      for process in children:
        process.kill()
        process.wait()
    return (
      [process.returncode for process in children],
      max(ends.values()) - min(ends.values()),
    )

  def tail(self) -> str:
    """Returns the end of what the newest run said."""
    files = sorted(self.folder.glob('errors*.txt'))
    return '\n'.join(f'{f.name}: {f.read_text()[-2000:]}' for f in files)

  def left(self, workdir: str) -> dict:
    """Returns what must be equal between two runs."""
    from train.run import metrics

    results = json.loads((self.folder / workdir / 'results.json').read_text())
    del results['seconds']
    rows = metrics.read_metrics(self.folder / workdir)
    rows = [row for row in rows if not row[1].startswith('time/')]
    return results | {'rows': rows}

  def finish(self, number: int, workdir: str) -> dict:
    """Runs until the end; returns what is left."""
    codes, _ = self.end(self.start(number, workdir))
    assert codes == [0] * number, (codes, self.tail())
    return self.left(workdir)

  def unfinished(self, workdir: str) -> set[str]:
    """Returns the names of checkpoints that were begun and not finished."""
    folder = self.folder / workdir / 'checkpoints'
    return {path.name for path in folder.glob('*tmp*')}

  def check(self, number: int, workdir: str) -> bool:
    """Returns whether a run that was killed equals the uninterrupted one."""
    if number not in self._whole:
      self._whole[number] = self.finish(number, f'whole{number}')
    left = self.finish(number, workdir)
    assert not self.unfinished(workdir)
    return left == self._whole[number]

  def strike(self, kill: Kill, workdir: str) -> bool:
    """Runs, continues and kills; returns whether it was before the end.

    Raises:
      AssertionError: if the processes did not end as they should.
    """
    before = self.unfinished(workdir)
    codes, seconds = self.end(self.start(kill.processes, workdir, kill))
    if codes == [0] * kill.processes:
      return False
    torn = self.unfinished(workdir) - before
    if kill.signal == 'SIGKILL':
      assert codes[kill.victim] == -signal.SIGKILL, (kill, codes, self.tail())
      assert 0 not in codes, (kill, codes)
    elif codes != [-signal.SIGTERM]:  # so early that nothing was to be saved
      assert codes == [75] * kill.processes, (kill, codes, self.tail())
      (said,) = re.findall(r'step (\d+) is saved', self.errors(0).read_text())
      folders = (self.folder / workdir / 'checkpoints').iterdir()
      assert int(said) == max(int(f.name) for f in folders if f.name.isdigit())
      assert not torn
    self.rows.append(
      kill._asdict()
      | {'exit_codes': codes, 'seconds_alone': round(seconds, 1)}
      | {'save_torn': bool(torn)}
    )
    return True

  def run(self, kills: list[Kill], a_run: int = 3) -> bool:
    """Strikes all, so many a run; returns whether all ended equal.

    A run that ends before it was struck counts as a run, and the kill strikes
    another.
    """
    equal = True
    for number in sorted({kill.processes for kill in kills}):
      waiting = [kill for kill in kills if kill.processes == number]
      while waiting:
        self._workdirs[number] += 1
        workdir = f'torn{number}-{self._workdirs[number]}'
        for _ in range(a_run):
          if not (waiting and self.strike(waiting[0], workdir)):
            break
          print(self.rows[-1], file=sys.stderr, flush=True)
          del waiting[0]
        same = self.check(number, workdir)
        print(f'{workdir} equal: {same}', file=sys.stderr, flush=True)
        equal = equal and same
    return equal


def main() -> None:
  """Kills so often, and writes a report."""
  from train.host import device

  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--kills', type=int, default=20, help='SIGKILLs')
  parser.add_argument('--terms', type=int, default=10, help='SIGTERMs')
  parser.add_argument('--seed', type=int, default=0, help='of the moments')
  parser.add_argument('--output', help='where the report goes, as JSON')
  flags = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', f'{folder}/xla')
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
    harness = Harness(pathlib.Path(folder))
    kills = draw(flags.kills, flags.terms, random.Random(flags.seed))
    equal = harness.run(kills)
  counts: dict[str, Any] = {}
  for row in harness.rows:
    of = counts.setdefault(
      f'{row["signal"]}, processes: {row["processes"]}', {}
    )
    of[row['moment']] = of.get(row['moment'], 0) + 1
  command = f'python tests/helpers/kills.py --kills {flags.kills}'
  report = {
    'command': f'{command} --terms {flags.terms} --seed {flags.seed}',
    'revision': device.revision(),
    'all_equal': equal,
    'kills': len(harness.rows),
    'saves_torn': sum(row['save_torn'] for row in harness.rows),
    'longest_seconds_of_a_survivor': max(
      row['seconds_alone'] for row in harness.rows
    ),
    'counts': counts,
    'each': harness.rows,
  }
  text = json.dumps(report, indent=2)
  print(text)
  if flags.output:
    pathlib.Path(flags.output).write_text(text + '\n')
  sys.exit(0 if equal else 1)


if __name__ == '__main__':
  if sys.argv[1:2] == ['child']:
    child(sys.argv[2:])
  else:
    main()
