"""A TPU host as its start-up script finds it, empty, with stand-ins.

As a program it stands in for curl, gcloud and uv.
"""

import dataclasses
import io
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).parents[3]
SCRIPT = ROOT / 'train/slices/tpu_startup.sh'
ARCHIVED = ('configs', 'data', 'models', 'train', 'setup.py', 'README.md')
# Instead of Python: it ends with the next code of a file, or is Python.
_PYTHON = """#!/bin/sh
cd {folder}
printf '%s\\0' "$@" > arguments
code=$(head -n 1 codes)
sed -i 1d codes
echo "$code" >> ended
[ "$code" = train ] || exit "$code"
cd {home}
exec env {variables} PYTHONPATH={home}/code:{helpers} {python} "$@"
"""


def archive(added: dict[str, str], names: tuple[str, ...] = ARCHIVED) -> bytes:
  """Returns what `git archive` would, of the tree as it is, with files more."""
  file = io.BytesIO()

  def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if '__pycache__' in entry.name else entry

  with tarfile.open(fileobj=file, mode='w:gz') as tar:
    for name in names:
      tar.add(ROOT / name, name, filter=kept)
    for name, text in added.items():
      entry = tarfile.TarInfo(name)
      entry.size = len(text.encode())
      tar.addfile(entry, io.BytesIO(text.encode()))
  return file.getvalue()


@dataclasses.dataclass
class Host:
  """A host's disk.

  Attributes:
    folder: of everything.
    url: of Cloud Storage.
    attributes: of the metadata.
    variables: those that our programs need in a test.
  """

  folder: pathlib.Path
  url: str
  attributes: dict[str, str]
  variables: dict[str, str]

  def __post_init__(self):
    self.home = self.folder / 'sesame'
    programs = self.folder / 'programs'
    programs.mkdir(parents=True)
    for name in ('curl', 'gcloud', 'uv'):
      self._program(programs / name)
    (self.folder / 'path').mkdir()  # uv comes by its installer
    for name in ('curl', 'gcloud'):
      (self.folder / 'path' / name).symlink_to(programs / name)
    (self.folder / 'url').write_text(self.url)
    (self.folder / 'python').write_text(
      _PYTHON.format(
        folder=shlex.quote(str(self.folder)),
        home=shlex.quote(str(self.home)),
        helpers=':'.join(
          shlex.quote(str(ROOT / 'tests' / name))
          for name in ('helpers', 'helpers/children')
        ),
        python=shlex.quote(sys.executable),
        variables=shlex.join(f'{k}={v}' for k, v in self.variables.items()),
      )
    )

  def _program(self, path: pathlib.Path) -> None:
    words = (sys.executable, '-SE', __file__, str(self.folder), path.name)
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)

  def fail_once(self, *programs: str) -> None:
    """Makes each program's next call fail; 'half': gcloud copies half."""
    for name in programs:
      (self.folder / f'{name}.fails').touch()

  def boot(self, *codes: str) -> int:
    """Runs the script; `codes` of its runs, 'train' is a true one."""
    (self.folder / 'attributes').write_text(json.dumps(self.attributes))
    (self.folder / 'codes').write_text(''.join(f'{code}\n' for code in codes))
    (self.folder / 'ended').write_text('')
    (self.folder / 'calls').write_text('')
    environment = {
      'HOME': str(self.folder / 'root'),
      'PATH': f'{self.folder / "path"}:/usr/bin:/bin',
      'SESAME_HOME': str(self.home),
      'SESAME_PAUSE': '0',
    }
    script = subprocess.Popen(
      ['/bin/bash', SCRIPT],
      env=environment,
      cwd='/',
      stdin=subprocess.DEVNULL,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      start_new_session=True,
    )
    try:
      printed, _ = script.communicate(timeout=400)
    except BaseException:
      os.killpg(script.pid, signal.SIGKILL)  # and what it runs
      script.communicate()
      raise
    assert not printed  # all is in the log
    return script.returncode

  @property
  def log(self) -> str:
    """What the script wrote at all boots."""
    return (self.home / 'log').read_text()

  @property
  def ended(self) -> list[str]:
    """The codes of the last boot's runs."""
    return (self.folder / 'ended').read_text().split()

  @property
  def calls(self) -> list[str]:
    """The programs' calls at the last boot."""
    return (self.folder / 'calls').read_text().splitlines()

  @property
  def arguments(self) -> list[str]:
    """Those of the last run."""
    return (self.folder / 'arguments').read_text().split('\0')[:-1]


def _fails(folder: pathlib.Path, name: str) -> bool:
  try:
    (folder / f'{name}.fails').unlink()
  except FileNotFoundError:
    return False
  return True


def _curl(folder: pathlib.Path, arguments: list[str]) -> int:
  url = arguments[-1]
  if url == 'https://astral.sh/uv/install.sh':
    program = shlex.quote(str(folder / 'programs/uv'))
    print(f'mkdir -p "$HOME/.local/bin" && cp {program} "$HOME/.local/bin"')
    return 0
  where, _, name = url.rpartition('/')
  assert (
    where == 'http://metadata.google.internal/computeMetadata/v1/instance'
    '/attributes'
  ), url
  assert 'Metadata-Flavor: Google' in arguments
  assert arguments[arguments.index('--write-out') + 1] == '\\n%{http_code}'
  attributes = json.loads((folder / 'attributes').read_text())
  found = name in attributes
  print(attributes.get(name, 'Error 404'), 200 if found else 404, sep='\n')
  return 0


def _gcloud(folder: pathlib.Path, arguments: list[str]) -> int:
  storage, copy, path, target = arguments
  assert (storage, copy) == ('storage', 'cp')
  bucket, _, name = path.removeprefix('gs://').partition('/')
  url = (folder / 'url').read_text()
  name = urllib.parse.quote(name, safe='')
  with urllib.request.urlopen(
    f'{url}/storage/v1/b/{bucket}/o/{name}?alt=media'
  ) as answer:
    data = answer.read()
  half = _fails(folder, 'half')
  pathlib.Path(target).write_bytes(data[: len(data) // 2] if half else data)
  return 0


def _uv(folder: pathlib.Path, arguments: list[str]) -> int:
  if arguments[0] == 'venv':
    python = pathlib.Path(arguments[-1], 'bin/python')
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text((folder / 'python').read_text())
    python.chmod(0o755)
    return 0
  *options, what = arguments
  assert options == ['pip', 'install', '--python', 'venv/bin/python', '-e']
  assert what == 'code[tpu]'
  return 0 if pathlib.Path('code/setup.py').exists() else 1


def main() -> int:
  """Is the program that the second argument names."""
  folder, name = pathlib.Path(sys.argv[1]), sys.argv[2]
  with (folder / 'calls').open('a') as file:
    print(shlex.join(sys.argv[2:]), file=file)
  if _fails(folder, name):
    print(f'{name}: made to fail', file=sys.stderr)
    return 6
  programs = {'curl': _curl, 'gcloud': _gcloud, 'uv': _uv}
  return programs[name](folder, sys.argv[3:])


if __name__ == '__main__':
  sys.exit(main())
