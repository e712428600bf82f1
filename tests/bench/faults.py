r"""Which of two suites catches small faults that are put into our own files.

  python tests/bench/faults.py --suites OLD NEW --count 60 --seed 0 --out FILE

OLD and NEW are checkouts. A fault is one change in one file of `train`, `data`
or `models` that is the same in both: a comparison turned, a constant changed, a
statement left out, or two arguments swapped, as many of each kind. Faults are
drawn by the seed; those whose module no longer imports are skipped. Every suite
runs the tests of the module's room, slow ones too, up to the first failure.
FILE is read again, and what it has is not run twice: a stopped command
continues. To see what the new suite lost, `--only new`, and then `--missed`:
the old one tries only what the new one did not catch.
"""

import argparse
import ast
import concurrent.futures
import json
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from typing import NamedTuple

PACKAGES = ('data', 'models', 'train')
SECONDS = 3600  # of a room's tests; a fault that lets them wait is caught
TURNED = {
  ast.Lt: '<=',
  ast.LtE: '<',
  ast.Gt: '>=',
  ast.GtE: '>',
  ast.Eq: '!=',
  ast.NotEq: '==',
  ast.In: 'not in',
  ast.NotIn: 'in',
  ast.Is: 'is not',
  ast.IsNot: 'is',
}


class Fault(NamedTuple):
  """A change of a file.

  Attributes:
    path: of the file, from the project's root.
    line: where it begins, from 1.
    kind: comparison, constant, statement or arguments.
    before: the text that is replaced.
    after: the text in its place.
    offset: of `before`, in bytes of the file.
  """

  path: str
  line: int
  kind: str
  before: str
  after: str
  offset: int


def faults_of(path: str, source: bytes) -> list[Fault]:
  """Returns all faults that one file may have."""
  starts = [0]
  for line in source.split(b'\n'):
    starts.append(starts[-1] + len(line) + 1)

  def span(first: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
    last = last or first
    return (
      starts[first.lineno - 1] + first.col_offset,
      starts[last.end_lineno - 1] + last.end_col_offset,
    )

  def text(node: ast.AST) -> str:
    begin, end = span(node)
    return source[begin:end].decode()

  found = []

  def add(kind: str, first: ast.AST, last: ast.AST, after: str) -> None:
    begin, end = span(first, last)
    before = source[begin:end].decode()
    found.append(Fault(path, first.lineno, kind, before, after, begin))

  tree = ast.parse(source)
  # Docstrings, annotations and f-strings are not what a program does.
  skipped = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
      skipped.update(ast.walk(node))
    for field in ('annotation', 'returns'):
      if getattr(node, field, None) is not None:
        skipped.update(ast.walk(getattr(node, field)))
    if isinstance(node, ast.JoinedStr):
      skipped.update(ast.walk(node))
  for node in ast.walk(tree):
    if node in skipped:
      continue
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
      left, right = node.left, node.comparators[0]
      sign = TURNED[type(node.ops[0])]
      add('comparison', node, node, f'({text(left)}) {sign} ({text(right)})')
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
      add('constant', node, node, str(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
      add('constant', node, node, str(node.value + 1))
    elif isinstance(node, ast.Constant) and isinstance(node.value, float):
      add('constant', node, node, repr(2 * node.value + 1e-3))
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise):
      add('statement', node, node, 'pass')
    if isinstance(node, ast.Call) and len(node.args) >= 2:
      a, b = node.args[:2]
      if not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred):
        begin, end = span(a)[1], span(b)[0]
        between = source[begin:end].decode()
        add('arguments', a, b, text(b) + between + text(a))
  return [fault for fault in found if fault.before != fault.after]


def room_tests(root: pathlib.Path, path: str) -> list[str]:
  """Returns the test files of a room: the file's own one, then short ones."""
  package, *middle, name = pathlib.PurePath(path).parts
  tests = root / 'tests' / package
  if middle:
    found = [*tests.joinpath(middle[0]).rglob('test_*.py')]
    found.append(root / 'tests/test_layout.py')
  else:  # a module beside the rooms
    found = [*tests.glob('test_*.py'), *tests.glob('parity/test_*.py')]
  own = tests.joinpath(*middle, f'test_{name}')
  found.sort(key=lambda file: (file != own, file.stat().st_size))
  return [str(file.relative_to(root)) for file in found]


def changed(root: pathlib.Path, fault: Fault) -> bytes:
  source = (root / fault.path).read_bytes()
  end = fault.offset + len(fault.before.encode())
  assert source[fault.offset : end].decode() == fault.before
  return source[: fault.offset] + fault.after.encode() + source[end:]


def imports(root: pathlib.Path, path: str) -> bool:
  """Whether a module imports, in a process of its own."""
  module = '.'.join(pathlib.PurePath(path).with_suffix('').parts)
  try:
    done = subprocess.run(
      [sys.executable, '-c', f'import {module.removesuffix(".__init__")}'],
      cwd=root,
      env=os.environ | {'PYTHONPATH': str(root), 'JAX_PLATFORMS': 'cpu'},
      capture_output=True,
      timeout=120,
    )
  except subprocess.TimeoutExpired:
    return False
  return done.returncode == 0


def draw(old: pathlib.Path, new: pathlib.Path, count: int, seed: int):
  """Yields faults of the kinds in turns, each in a file of both suites."""
  by_kind: dict[str, list[Fault]] = {}
  for package in PACKAGES:
    for file in sorted((new / package).rglob('*.py')):
      path = str(file.relative_to(new))
      source = file.read_bytes()
      if (old / path).exists() and (old / path).read_bytes() == source:
        for fault in faults_of(path, source):
          by_kind.setdefault(fault.kind, []).append(fault)
  rng = random.Random(seed)
  kinds = sorted(by_kind)
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    for package in (*PACKAGES, 'configs'):
      shutil.copytree(new / package, root / package)
    drawn = 0
    while drawn < count:
      fault = rng.choice(by_kind[kinds[drawn % len(kinds)]])
      whole = (root / fault.path).read_bytes()
      (root / fault.path).write_bytes(changed(root, fault))
      fits = imports(root, fault.path)
      (root / fault.path).write_bytes(whole)
      if fits:
        drawn += 1
        yield fault


class Copy(NamedTuple):
  """A checkout that may be broken, and a Python that imports it.

  Attributes:
    root: the checkout.
    python: the interpreter of an environment with our packages, in which the
      project is this checkout: for the processes that a test starts, too.
    cache: the folder of compiled programs.
  """

  root: pathlib.Path
  python: pathlib.Path
  cache: pathlib.Path


def copied(suite: pathlib.Path, folder: pathlib.Path, name: str) -> Copy:
  """Clones a checkout and makes an environment for it."""
  root, environment = folder / name, folder / f'{name}-python'
  subprocess.run(['git', 'clone', '-q', suite, root], check=True)
  venv.create(environment, symlinks=True)
  (packages,) = environment.glob('lib/python*/site-packages')
  ours = [path for path in sys.path if path.endswith('-packages')]
  (packages / 'checkout.pth').write_text('\n'.join([str(root), *ours]) + '\n')
  for program in pathlib.Path(sys.prefix, 'bin').iterdir():  # ruff, shellcheck
    if not (place := environment / 'bin' / program.name).exists():
      place.symlink_to(program)
  cache = folder / f'xla-{name.split("-")[0]}'
  return Copy(root, environment / 'bin/python', cache)


def run_tests(copy: Copy, tests: list[str]) -> tuple[int, str]:
  """Runs tests up to the first failure; returns the code and what they say."""
  command = [str(copy.python), '-m', 'pytest', '-x', '-q', '-n', '0']
  command += ['-m', 'slow or not slow', '-p', 'no:cacheprovider', *tests]
  child = subprocess.Popen(
    command,
    cwd=copy.root,
    env=os.environ
    | {'PYTHONPATH': str(copy.root), 'SESAME_TEST_CACHE': str(copy.cache)},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    start_new_session=True,
  )
  try:
    output, _ = child.communicate(timeout=SECONDS)
  except subprocess.TimeoutExpired:
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    return 1, 'FAILED: did not end'
  assert child.returncode in (0, 1, 2), output[-3000:]
  return child.returncode, output


def try_fault(copy: Copy, fault: Fault) -> dict:
  """Runs a suite's tests of a room on a fault; returns what they found.

  A test that fails without the fault as well is left out, and the rest is run
  again.
  """
  file = copy.root / fault.path
  whole = file.read_bytes()
  broken = changed(copy.root, fault)
  began = time.monotonic()
  left_out: list[str] = []
  while True:
    file.write_bytes(broken)
    try:
      code, output = run_tests(
        copy,
        room_tests(copy.root, fault.path)
        + [f'--deselect={test}' for test in left_out],
      )
    finally:
      file.write_bytes(whole)
    by = [
      line.split(' - ')[0]
      for line in output.splitlines()
      if line[:6] in ('FAILED', 'ERROR ')
    ]
    test = by[0].partition(' ')[2] if by else ''
    if not code or '::' not in test or not run_tests(copy, [test])[0]:
      break
    left_out.append(test)
  return {
    'caught': code != 0,
    'by': by[0] if by else '',
    'left_out': left_out,
    'seconds': round(time.monotonic() - began),
  }


def main() -> None:
  """Prints how many faults each suite catches, and each fault."""
  parser = argparse.ArgumentParser(
    description=__doc__.split('\n')[0], allow_abbrev=False
  )
  parser.add_argument('--suites', nargs=2, required=True, type=pathlib.Path)
  parser.add_argument('--count', type=int, default=60)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--only', choices=('old', 'new'))
  parser.add_argument(
    '--missed', action='store_true', help='OLD on what NEW does not catch'
  )
  parser.add_argument('--workers', type=int, default=2)
  parser.add_argument('--out', required=True, type=pathlib.Path)
  flags = parser.parse_args()
  suites = dict(
    zip(('old', 'new'), (s.absolute() for s in flags.suites), strict=True)
  )
  record = json.loads(flags.out.read_text()) if flags.out.exists() else {}
  if not record:
    drawn = draw(*suites.values(), flags.count, flags.seed)
    record = {'seed': flags.seed, 'faults': [f._asdict() for f in drawn]}
    flags.out.write_text(json.dumps(record, indent=1) + '\n')

  def asked(name: str, row: dict) -> bool:
    if flags.missed and name == 'old':
      return not row.get('new', {}).get('caught', True)
    return flags.only in (None, name)

  work = [
    (name, row)
    for name in suites
    for row in record['faults']
    if name not in row and asked(name, row)
  ]
  with tempfile.TemporaryDirectory(prefix='faults-') as folder:
    copies = {}
    for name, root in suites.items():
      copies[name] = queue.Queue()
      for number in range(flags.workers):
        copies[name].put(copied(root, pathlib.Path(folder), f'{name}-{number}'))

    def run(name, row):
      copy = copies[name].get()
      fault = Fault(**{field: row[field] for field in Fault._fields})
      try:
        return try_fault(copy, fault)
      finally:
        copies[name].put(copy)

    with concurrent.futures.ThreadPoolExecutor(flags.workers) as pool:
      futures = {pool.submit(run, name, row): (name, row) for name, row in work}
      for future in concurrent.futures.as_completed(futures):
        name, row = futures[future]
        row[name] = future.result()
        flags.out.write_text(json.dumps(record, indent=1) + '\n')
        print(
          f'{name} {row["path"]}:{row["line"]} {row["kind"]}: {row[name]}',
          file=sys.stderr,
          flush=True,
        )
  print('| fault | old | new |\n|---|---|---|')
  for row in record['faults']:
    cells = [
      ('caught' if row[name]['caught'] else 'NOT caught') if name in row else ''
      for name in suites
    ]
    before = ' '.join(row['before'].split())[:50].replace('|', '\\|')
    print(
      f'| {row["path"]}:{row["line"]}, {row["kind"]} `{before}` '
      f'| {" | ".join(cells)} |'
    )
  for name in suites:
    caught = [row[name]['caught'] for row in record['faults'] if name in row]
    print(f'{name}: {sum(caught)} of {len(caught)} caught')


if __name__ == '__main__':
  main()
