"""Kills training at drawn moments, starts it again, and compares the ends.

python tests/helpers/kills.py --kills 20 --terms 10 --output FILE draws moments,
kills runs of one and of two processes there, starts each again by the same
command until it ends, and compares what it leaves with an uninterrupted run.
With --storage gs the workdirs and the store are on a Cloud Storage that makes
faults; the uninterrupted run is of a local folder.
"""

import argparse
import collections
import contextlib
import copy
import json
import os
import pathlib
import pydoc_data.topics
import random
import re
import shutil
import signal
import sys
import tempfile
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
STEPS = 50
BATCH = 16
TRAIN = pathlib.Path(__file__).parent / 'train'
LIMIT_SECONDS = 600  # of a run, on a slow and busy machine
# An abandoned process must end long before; far above what a busy machine
# delays a heartbeat by.
HEARTBEAT_SECONDS = 40
# How often the same command is given again after faults of the storage.
RESTARTS = 5
# How long after a save began a kill may come: on Cloud Storage it takes longer.
SAVE_SECONDS, GS_SAVE_SECONDS = 0.05, 2.0
_TRACE = 'Traceback (most recent call last)'


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


def draw(
  kills: int,
  terms: int,
  rng: random.Random,
  save_seconds: float = SAVE_SECONDS,
) -> list[Kill]:
  """Returns so many SIGKILLs and SIGTERMs, every moment in turn."""
  drawn = []
  for name, number in (('SIGKILL', kills), ('SIGTERM', terms)):
    moments: list[str] = []
    while len(moments) < number:
      moments += rng.sample(MOMENTS, len(MOMENTS))
    for i, moment in enumerate(moments[:number]):
      processes = 1 + i % 2
      longest = save_seconds if moment == 'save' else 0.05
      drawn.append(
        Kill(
          signal=name,
          processes=processes,
          victim=rng.randrange(processes),
          moment=moment,
          count=rng.randrange(1, 13),
          delay=rng.choice((0.0, rng.uniform(0, longest))),
        )
      )
  rng.shuffle(drawn)
  return drawn


class Harness:
  """Runs of one config, killed and not.

  They are of a small bert_tiny, or with `packed` of a bert_tiny:modern in
  packed rows.

  Attributes:
    folder: where stores, configs and workdirs go.
    bucket: where workdirs go instead; None: nowhere else.
    rng: draws the faults of the bucket; None: there are none.
    rows: what each kill did, for a report.
    stopped: messages of runs that a fault of the bucket ended.
    litter: saves that were begun and not finished, once their run had ended;
      of a bucket alone.
    traces: ends of what processes said that printed a stack trace.
  """

  def __init__(self, folder: pathlib.Path, *, packed: bool = False):
    self.folder, self._packed = folder, packed
    self.bucket = self.rng = None
    self.rows: list[dict[str, Any]] = []
    self.stopped: list[str] = []
    self.litter: list[str] = []
    self.traces: list[str] = []
    self._flags: list[str] = []
    self._whole: dict[int, dict] = {}
    self._workdirs: dict[int, int] = collections.Counter()
    self._write_inputs()

  def on(self, bucket: Any, rng: random.Random | None) -> 'Harness':
    """Returns a harness whose runs are on a bucket, of the same whole runs."""
    there = copy.copy(self)
    there.bucket, there.rng = bucket, rng
    there.rows, there.stopped, there.litter, there.traces = [], [], [], []
    there._workdirs = collections.Counter()
    store = bucket.upload(self.folder / 'store')
    there._flags = [
      f'--config.data.folder={store}',
      '--config.data.cache=cache',
    ]
    return there

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
    windows = pairs.PairExamples(
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
      name = 'bert_tiny'
      if self._packed:
        name = 'bert_tiny:modern'
        overrides['data.packed'] = 'documents'
      config = settings.with_overrides(settings.load_config(name), overrides)
      (self.folder / f'config{number}.py').write_text(
        'from configs import base\n\n\n'
        'def get_config():\n'
        '  config = base.get_config()\n'
        f'  config.update_from_flattened_dict({settings.flatten(config)!r})\n'
        '  return config.lock()\n'
      )

  def start(
    self, number: int, workdir: str, kill: Kill | None = None
  ) -> list[launch.Program]:
    """Starts a run's processes; standard error goes to files."""
    where = f'{self.bucket.url}/{workdir}' if self.bucket else workdir
    coordinator = f'localhost:{launch.free_port()}'
    children = []
    for i in range(number):
      environment = launch.environment() | {
        'JAX_PLATFORMS': 'cpu',
        'STEPS_PER_EPOCH': str(self._steps_per_epoch),
      }
      if self.bucket:
        environment |= self.bucket.environment
      if kill is not None and kill.victim == i:
        environment['KILL'] = json.dumps(kill._asdict())
      # A relative workdir, as the default is.
      command = [str(TRAIN / 'kill_child.py')]
      command += ['--config', f'config{number}.py', '--workdir', where]
      command += self._flags
      if number > 1:
        command += [
          f'--coordinator={coordinator}',
          f'--num_processes={number}',
          f'--process_id={i}',
          f'--heartbeat_seconds={HEARTBEAT_SECONDS}',
        ]
      self.errors(i).write_text('')
      children.append(
        launch.Program(
          command, environment, self.folder, os.devnull, self.errors(i)
        )
      )
    return children

  def errors(self, process: int) -> pathlib.Path:
    """Returns the file of the newest run's standard error."""
    return self.folder / f'errors{process}.txt'

  def end(self, children: list[launch.Program]) -> tuple[list[int], float]:
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

    folder = self.at(workdir)
    results = json.loads((folder / 'results.json').read_text())
    del results['seconds']
    for key in ('data.folder', 'data.cache'):
      del results['config'][key]
    rows = metrics.read_metrics(folder)
    rows = [row for row in rows if not row[1].startswith('time/')]
    return results | {'rows': rows}

  def at(self, workdir: str) -> pathlib.Path:
    """Returns a workdir, of one on a bucket what it holds now."""
    folder = self.folder / workdir
    return self.bucket.download(workdir, folder) if self.bucket else folder

  def go(
    self, number: int, workdir: str, kill: Kill | None = None
  ) -> tuple[list[int], float, dict]:
    """Runs until the end, again where a fault of the storage ended the run.

    Returns:
      The exit codes, seconds from first to last, a report of the faults.
    """
    for _ in range(RESTARTS):
      if not self.bucket:
        return *self.end(self.start(number, workdir, kill)), {}
      with self.bucket.faults(self.rng) as faults:
        codes, seconds = self.end(self.start(number, workdir, kill))
      said = [self.errors(i).read_text() for i in range(number)]
      traces = [text[text.index(_TRACE) :] for text in said if _TRACE in text]
      if number > 1 and -signal.SIGKILL in codes:
        traces = []  # JAX itself ends the others so
      self.traces += traces
      for trace in traces:
        print(trace, file=sys.stderr, flush=True)
      if codes != [1] * number:
        return codes, seconds, {'faults': faults}
      if not traces:
        (message,) = re.findall(r'^error: .*', said[0], re.MULTILINE)
        self.stopped.append(message)
        print(f'{workdir}: {message}', file=sys.stderr, flush=True)
    raise AssertionError(f'{RESTARTS} times ended by faults: {self.tail()}')

  def finish(self, number: int, workdir: str) -> dict:
    """Runs until the end; returns what is left."""
    codes, _, _ = self.go(number, workdir)
    assert codes == [0] * number, (codes, self.tail())
    return self.left(workdir)

  def complete(self, workdir: str) -> set[int]:
    """Returns the steps of the checkpoints that were finished."""
    from train.run import checkpoint

    folder = self.at(workdir) / 'checkpoints'
    steps = {path for path in folder.glob('*') if path.name.isdigit()}
    if self.bucket:  # where nothing is renamed
      steps = {
        path for path in steps if (path / checkpoint.COMMIT_FILE).exists()
      }
    return {int(path.name) for path in steps}

  def unfinished(self, workdir: str) -> set[str]:
    """Returns what is left of checkpoints that were begun and not finished."""
    folder = self.at(workdir) / 'checkpoints'
    if not self.bucket:
      return {path.name for path in folder.glob('*tmp*')}
    complete = {str(step) for step in self.complete(workdir)}
    files = (path for path in folder.rglob('*') if path.is_file())
    names = (path.relative_to(folder) for path in files)
    return {str(name) for name in names if name.parts[0] not in complete}

  def check(self, number: int, workdir: str) -> bool:
    """Returns whether a run that was killed equals the uninterrupted one."""
    left = self.finish(number, workdir)
    litter = {pathlib.Path(name).parts[0] for name in self.unfinished(workdir)}
    assert self.bucket or not litter
    self.litter += [f'{workdir}/{name}' for name in sorted(litter)]
    whole = self.whole(number)
    for name in sorted({*left, *whole}):
      if left.get(name) != whole.get(name):
        said = f'{workdir}: {name} is {left.get(name)}, not {whole.get(name)}'
        print(said, file=sys.stderr, flush=True)
    return left == whole

  def whole(self, number: int) -> dict:
    """Returns what an uninterrupted run leaves in a local folder."""
    if number not in self._whole:
      local = copy.copy(self)
      local.bucket, local._flags = None, []
      self._whole[number] = local.finish(number, f'whole{number}')
    return self._whole[number]

  def strike(self, kill: Kill, workdir: str) -> bool:
    """Runs, continues and kills; returns whether it was before the end.

    Raises:
      AssertionError: if the processes did not end as they should.
    """
    before = self.unfinished(workdir)
    codes, seconds, faults = self.go(kill.processes, workdir, kill)
    if codes == [0] * kill.processes:
      return False
    torn = self.unfinished(workdir) - before
    if kill.signal == 'SIGKILL':
      assert codes[kill.victim] == -signal.SIGKILL, (kill, codes, self.tail())
      assert 0 not in codes, (kill, codes)
    elif codes != [-signal.SIGTERM]:  # so early that nothing was to be saved
      assert codes == [75] * kill.processes, (kill, codes, self.tail())
      (said,) = re.findall(r'step (\d+) is saved', self.errors(0).read_text())
      assert int(said) == max(self.complete(workdir))
      assert not torn
    self.rows.append(
      kill._asdict()
      | {'exit_codes': codes, 'seconds_alone': round(seconds, 1)}
      | {'save_torn': bool(torn)}
      | faults
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
        # Every run copies the store from the bucket.
        shutil.rmtree(self.folder / 'cache', ignore_errors=True)
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
  parser.add_argument(
    '--storage', choices=('local', 'gs'), default='local', help='of workdirs'
  )
  parser.add_argument('--output', help='where the report goes, as JSON')
  flags = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    os.environ.setdefault('JAX_COMPILATION_CACHE_DIR', f'{folder}/xla')
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    os.environ['JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES'] = '-1'
    harness = Harness(pathlib.Path(folder))
    rng, on_gs = random.Random(flags.seed), flags.storage == 'gs'
    longest = GS_SAVE_SECONDS if on_gs else SAVE_SECONDS
    kills = draw(flags.kills, flags.terms, rng, longest)
    equal, storage = True, {}
    with contextlib.ExitStack() as stack:
      if on_gs:
        sys.path.append(str(TRAIN))
        import kill_storage

        bucket = stack.enter_context(kill_storage.serve())
        without_faults = harness.on(bucket, None)
        for number in sorted({kill.processes for kill in kills}):
          equal &= without_faults.check(number, f'calm{number}')
          print(f'without faults equal: {equal}', file=sys.stderr, flush=True)
        harness = harness.on(bucket, rng)
      equal &= harness.run(kills)
      if on_gs:
        storage = {'storage': bucket.report()} | {
          'runs_ended_by_a_fault': harness.stopped,
          'saves_left_unfinished': harness.litter,
          'stack_traces': harness.traces,
        }
  counts: dict[str, Any] = {}
  for row in harness.rows:
    of = counts.setdefault(
      f'{row["signal"]}, processes: {row["processes"]}', {}
    )
    of[row['moment']] = of.get(row['moment'], 0) + 1
  command = f'python tests/helpers/kills.py --storage {flags.storage}'
  command += f' --kills {flags.kills} --terms {flags.terms}'
  report = {
    'command': f'{command} --seed {flags.seed}',
    'revision': device.revision(),
    'all_equal': equal,
    'kills': len(harness.rows),
    'saves_torn': sum(row['save_torn'] for row in harness.rows),
    'longest_seconds_of_a_survivor': max(
      row['seconds_alone'] for row in harness.rows
    ),
    **storage,
    'counts': counts,
    'each': harness.rows,
  }
  text = json.dumps(report, indent=2)
  print(text)
  if flags.output:
    pathlib.Path(flags.output).write_text(text + '\n')
  sys.exit(0 if equal and not harness.traces else 1)


if __name__ == '__main__':
  main()
