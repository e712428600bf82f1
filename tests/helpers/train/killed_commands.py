r"""Commands that are killed at drawn moments, and started again.

  python tests/helpers/train/killed_commands.py --count 60 [--seed 0]

Each command runs once undisturbed; then, for each kill, in a new folder: it is
killed after a drawn share of that time by SIGKILL or SIGTERM, and the same
command runs again. It must end with the same files, the figures of time and
place apart, and nothing else may lie there or in the temporary folder.
"""

import argparse
import contextlib
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
import time
from typing import NamedTuple

HELPERS = pathlib.Path(__file__).parents[1]
SECONDS = 200  # that an undisturbed command may take
# Files that tell of times, places and attempts, and the command's own messages.
APART = re.compile(
  r'said\.txt|.*/?(\.lock|\.verified\.json|ledger\.csv|metrics\.csv'
  r'|curves\.png|events\.out.*|config\.json|\.seen.*)'
)
# Keys of JSON that tell the same.
KEYS = 'seconds words_per_second device revision config weights'.split()


class Command(NamedTuple):
  """A command to kill.

  Attributes:
    module: as after python -m.
    arguments: in a folder of its own, where all that it makes lies.
    once: whether a finished one refuses to run again.
  """

  module: str
  arguments: tuple[str, ...]
  once: bool = False


class Harness:
  """Runs commands in folders of their own, all below one folder.

  Attributes:
    rows: (name, signal, seconds, what is wrong) of each kill.
  """

  def __init__(self, folder: pathlib.Path, commands: dict[str, Command]):
    self._folder, self._commands = folder, commands
    self._references: dict[str, tuple[dict, float]] = {}
    self.rows: list[tuple[str, str, float, str]] = []

  def kill(self, name: str, sign: signal.Signals, share: float) -> str:
    """Kills a command once; returns what is wrong afterwards."""
    if name not in self._references:
      began = time.monotonic()
      place, code = self._run(name)
      assert code == 0, (name, (place / 'said.txt').read_text())
      self._references[name] = contents(place), time.monotonic() - began
    expected, seconds = self._references[name]
    delay = share * seconds
    place, code = self._run(name, sign, delay)
    if code:
      _, code = self._run(name, place=place)
    said = (place / 'said.txt').read_text()
    found = contents(place)
    problem = ''
    if code and not (self._commands[name].once and 'already' in said):
      problem = f'ended with {code}: {said[-4000:]}'
    elif found.keys() != expected.keys():
      problem = f'files {sorted(found.keys() ^ expected.keys())}'
    else:
      problem = ', '.join(
        path for path in expected if found[path] != expected[path]
      )
      problem = problem and f'other content of {problem}'
    self.rows.append((name, sign.name, round(delay, 2), problem))
    return problem

  def _run(self, name, sign=None, delay=0.0, place=None):
    """Runs a command, and perhaps kills it; returns (folder, exit code)."""
    import launch

    command = self._commands[name]
    if place is None:
      place = pathlib.Path(
        tempfile.mkdtemp(prefix=f'{name}-', dir=self._folder)
      )
      (place / 'temporary').mkdir()
    said = place / 'said.txt'
    process = launch.Program(
      ['-m', command.module, *command.arguments],
      launch.environment() | {'TMPDIR': str(place / 'temporary')},
      place,
      said,
      said,
    )
    try:
      if sign is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
          process.wait(delay)
        process.send_signal(sign)  # nothing, to one that has ended
      return place, process.wait(SECONDS)
    finally:
      process.kill()
      process.wait()


def contents(place: pathlib.Path) -> dict[str, object]:
  """Returns each file's content by its path; times and places are left out.

  Digits of names that tell of a process or a time are left out too, and of a
  run's checkpoints the newest alone counts: a run that is asked to stop saves
  one at the step where it stands, which then takes the place of an older one.
  """
  found: dict[str, object] = {}
  for path in sorted(place.rglob('*')):
    name = str(path.relative_to(place))
    if APART.fullmatch(name) or '__autograph' in name or path.is_dir():
      continue
    step = re.match(r'(.*checkpoints)/(\d+)/', name)
    if step and int(step[2]) < _newest(place / step[1]):
      continue
    if 'checkpoints/' in name or '/model/' in name:
      found[re.sub(r'/(d|ocdbt\.process_0/d)/\w+', '/d/', name)] = ''
    elif path.suffix == '.json':
      found[name] = _plain(json.loads(path.read_text()))
    elif path.suffix == '.md':
      found[name] = re.sub(r'[\d,]+ s\b', '', path.read_text())
    else:
      found[name] = path.read_bytes()
  return found


def _newest(checkpoints: pathlib.Path) -> int:
  return max(int(x.name) for x in checkpoints.iterdir() if x.name.isdigit())


def _plain(value):
  if isinstance(value, dict):
    return {k: _plain(v) for k, v in value.items() if k not in KEYS}
  return [_plain(v) for v in value] if isinstance(value, list) else value


def draw(names, count: int, seed: int):
  """Yields (name, signal, share of the command's time), each name in turn."""
  rng = random.Random(seed)
  for number in range(count):
    sign = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
    yield names[number % len(names)], sign, rng.uniform(0.05, 1.0)


# --- What is killed


def write_config(config, path: pathlib.Path) -> str:
  """Writes a config as a user would, and returns its path."""
  import runs

  runs.write_config(config, path)
  return str(path)


def small_commands(folder: pathlib.Path) -> dict[str, Command]:
  """Writes small inputs into a folder; returns the commands on them."""
  import probe_sets
  import small_elmo
  import small_published
  import small_tasks
  import word2vec_runs
  import word_runs

  from data.vocabulary import tokenization
  from models.pretrained import elmo

  topics = list(pydoc_data.topics.topics.values())[:30]
  text = folder / 'text.txt'
  text.write_text('\n'.join(topics))
  lines = [line for topic in topics for line in topic.split('\n') if line]
  (folder / 'lines.txt').write_text('\n'.join(lines[:200]) + '\n')
  tokenizer = tokenization.train(
    topics, tokenization.parse_training('train:wordpiece:300')
  )
  bert = folder / 'bert'
  small_published.write_bert(bert, tokenizer, kind='BertModel')
  elmo.write_folder(folder / 'elmo', *small_elmo.small_elmo())
  own = small_tasks.write_sentences(folder / 'own')
  (folder / 'glue/SST-2').mkdir(parents=True)
  for part, count in (('train', 96), ('dev', 32)):
    rows = ['sentence\tlabel'] + [
      f'{text}\t{int(label == "good")}'
      for text, label in small_tasks.sentences(count, count)
    ]
    (folder / f'glue/SST-2/{part}.tsv').write_text('\n'.join(rows) + '\n')
  (folder / 'sets').mkdir()
  probe_sets.write(folder / 'sets', copies=4)
  (folder / 'words').mkdir()
  store = word2vec_runs.make_store(folder / 'words')
  maker = word_runs.Maker(folder / 'maker', bert)
  (folder / 'maker').mkdir()
  fine = small_tasks.small_config(own, bert, **{'train.num_epochs': 2.0})
  configs = {
    'fine_tuning': fine,
    'task_model': maker.config(
      'bcn', 'own sentences', **{'data.cache': 'cache'}
    ),
    'word2vec': word2vec_runs.small_config(store),
    'glove': word2vec_runs.small_config(store, 'glove_novels'),
  }
  runs_of = {
    name: Command(
      'train.main',
      (
        '--config',
        write_config(config, folder / f'{name}.py'),
        '--workdir',
        'run',
      ),
    )
    for name, config in configs.items()
  }
  return runs_of | {
    'sweep': Command(
      'train.sweep',
      (
        '--config',
        str(folder / 'fine_tuning.py'),
        '--workdir',
        'sweep',
        '--seeds',
        '2',
      ),
    ),
    'tables': Command(
      'train.tables',
      (
        '--table=bert/glue',
        f'--weights=own={bert}',
        f'--data={folder / "glue"}',
        '--only=own,sst2',
        '--seeds=1',
        '--out=out',
        '--config.train.num_epochs=1.0',
        '--config.train.global_batch=16',
        '--config.task.max_length=32',
        '--config.optim.learning_rate=1e-4',
      ),
    ),
    'probe': Command(
      'train.probe',
      (
        str(folder / 'elmo'),
        f'--data={folder / "sets"}',
        '--out=out',
        '--cache=cache',
        '--tasks=pos',
        '--steps=8',
        '--validate_every=4',
        '--batch_size=4',
        '--seeds=2',
      ),
    ),
    'prepare': Command(
      'data.prepare',
      (
        '--source',
        str(text),
        '--tokenizer',
        'train:wordpiece:300',
        '--document_break',
        'blank_line',
        '--out',
        'store',
      ),
    ),
    'phrases': Command(
      'data.phrases', (str(text), 'joined.txt', '--thresholds', '20', '5')
    ),
    'embed': Command(
      'train.embed',
      (str(bert), str(folder / 'lines.txt'), 'v.h5', '--unit', 'word'),
      once=True,
    ),
    'export': Command('train.weights', ('export', str(bert), 'to'), once=True),
    'import': Command('train.weights', ('import', str(bert), 'to'), once=True),
    'attention': Command(
      'train.attention',
      (
        str(bert),
        '--text',
        'The function returns a value.',
        '--out',
        'page.html',
        '--json',
        'page.json',
      ),
      once=True,
    ),
    'ngram': Command(
      'train.ngram',
      (
        str(text),
        '--order',
        '3',
        '--test',
        str(folder / 'lines.txt'),
        '--out',
        'model.arpa',
        '--output',
        'figures.json',
      ),
    ),
  }


def main():
  """Prints a line a kill, and how many went wrong."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--count', type=int, default=60)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--only', nargs='+', default=())
  args = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    commands = small_commands(folder)
    names = list(args.only or commands)
    harness = Harness(folder, commands)
    for name, sign, share in draw(names, args.count, args.seed):
      harness.kill(name, sign, share)
      print(*harness.rows[-1], flush=True)
  wrong = sum(bool(row[-1]) for row in harness.rows)
  print(f'{len(harness.rows)} kills, {wrong} of them ended otherwise')


if __name__ == '__main__':
  sys.path[:0] = [str(HELPERS), *(str(HELPERS / x) for x in ('train', 'data'))]
  # Started programs import a helper, see `children`.
  given = filter(None, [os.environ.get('PYTHONPATH')])
  os.environ['PYTHONPATH'] = os.pathsep.join([str(HELPERS), *given])
  main()
