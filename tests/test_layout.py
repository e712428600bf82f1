"""The house: who may import whom, and that all of it imports anywhere."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ('configs', 'models', 'data', 'train')
ALLOWED = {
  'configs': {'configs'},
  'models': {'models'},
  'data': {'data'},
  'train': set(PACKAGES),
}
MODULES = [
  path.relative_to(ROOT)
  for package in PACKAGES
  for path in sorted((ROOT / package).rglob('*.py'))
]


def imported(path: pathlib.Path, top_level_only: bool = False) -> set[str]:
  """Returns the first names of all modules that a file imports."""
  tree = ast.parse(path.read_text())
  nodes = tree.body if top_level_only else ast.walk(tree)
  names = set()
  for node in nodes:
    if isinstance(node, ast.Import):
      names |= {alias.name.partition('.')[0] for alias in node.names}
    elif isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}: a relative import'
      names.add(node.module.partition('.')[0])
  return names


@pytest.mark.parametrize('module', MODULES, ids=str)
def test_dependencies_point_one_way(module):
  package = module.parts[0]
  names = imported(ROOT / module)
  assert names & set(PACKAGES) <= ALLOWED[package]
  if package == 'models':
    assert not names & {'ml_collections', 'orbax'}
    # Published checkpoints alone are TensorFlow's.
    assert 'tensorflow' not in names or 'pretrained' in module.parts
  if package == 'configs':
    beside = names - sys.stdlib_module_names
    assert beside <= {'configs', 'ml_collections'}


@pytest.mark.parametrize('module', MODULES, ids=str)
def test_tensorflow_is_imported_on_use_only(module):
  heavy = {'tensorflow', 'tensorflow_datasets', 'torch', 'transformers'}
  assert not imported(ROOT / module, top_level_only=True) & heavy


def test_everything_imports_and_trains_without_tensorflow(
  small_config, tmp_path
):
  names = [
    '.'.join(module.with_suffix('').parts).removesuffix('.__init__')
    for module in MODULES
  ]
  from train import settings

  overrides = settings.flatten(
    small_config(train__phases=((3, 32, 16, 'continue'),), mesh__data=1)
  )
  program = f"""
import importlib, sys
for name in ('tensorflow', 'tensorflow_datasets'):
  sys.modules[name] = None
for name in {names!r}:
  importlib.import_module(name)
from train import loop, settings
config = settings.with_overrides(
  settings.load_config('bert_tiny'), {overrides!r}
)
results = loop.train(config, {str(tmp_path)!r})
assert results['steps'] == 3
"""
  environment = {
    'XLA_FLAGS': '--xla_backend_optimization_level=0',
    'JAX_PLATFORMS': 'cpu',
    'HOME': str(tmp_path),
  }
  subprocess.run(
    [sys.executable, '-c', program],
    env=environment,
    check=True,
    timeout=400,
    cwd=tmp_path,
  )


def test_commands_work_beside_folders_of_the_same_names(tmp_path):
  for package in PACKAGES:
    (tmp_path / package).mkdir()
    (tmp_path / package / 'mine.txt').write_text('not a package')
  done = subprocess.run(
    [sys.executable, '-m', 'train.main', '--config', 'bert_teeny'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert done.returncode == 1
  assert 'shipped are' in done.stderr
  assert 'bert_tiny' in done.stderr
  done = subprocess.run(
    [sys.executable, '-m', 'data.prepare', '--help'],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    timeout=400,
  )
  assert done.returncode == 0
  assert '--tokenizer' in done.stdout


def test_shell_scripts_are_sound():
  scripts = [str(path) for path in (ROOT / 'train').glob('*.sh')]
  assert scripts
  # The wheel puts the program beside Python's own.
  shellcheck = pathlib.Path(sys.executable).with_name('shellcheck')
  done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout
