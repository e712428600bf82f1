"""The house: who may import whom, and that all of it imports anywhere."""

import ast
import collections
import functools
import graphlib
import pathlib
import re
import shutil
import subprocess
import sys

import launch
import pytest

from configs import variants

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = ('configs', 'models', 'data', 'train')
ALLOWED = {
  'configs': {'configs', 'data'},  # of data the table of tasks alone, below
  'models': {'models'},
  'data': {'data'},
  'train': set(PACKAGES),
}
# Each room imports only itself and the rooms before it. A module beside the
# rooms is a command, a door, which no other module imports.
ROOMS = {
  'data': (
    'text',
    'vocabulary',
    'tasks',
    'store',
    'ngrams',
    'examples',
    'inputs',
    'scoring',
  ),
  'train': (
    'host',
    'engine',
    'run',
    'architectures',
    'params',
    'pretrain',
    'vectors',
    'meanings',
    'transfer',
    'exports',
    'language',
    'views',
    'papers',
    'probing',
    'slices',
    'benches',
  ),
}
# Not commands: the hub's downloads, object storage, folders to write in, how a
# command was begun and a log that may fail, before every room.
LIBRARIES = {
  'data.by_name',
  'data.hub',
  'data.program',
  'data.scratch',
  'data.steady_errors',
  'data.storage',
}
# The ring: what is made with a trained model, or instead of one. The core, all
# else, is what pre-training and fine-tuning ELMo, GPT and BERT need.
RING = (
  'configs.tables',
  'data.examples.cooccurrences',
  'data.examples.noise',
  'data.examples.sampled_words',
  'data.inputs.document_batches',
  'data.inputs.document_rows',
  'data.ngrams',
  'data.phrases',
  'data.scoring.coreference',
  'data.scoring.roles',
  'data.tasks.annotated.coreference',
  'data.tasks.annotated.roles',
  'data.tasks.annotated.slots',
  'data.tasks.annotated.universal',
  'data.tasks.probes',
  'data.tasks.senses',
  'data.tasks.words',
  'data.text.tables',
  'data.vocabulary.word2vec',
  'data.vocabulary.word_vectors',
  'models.baselines',
  'models.elmo_tasks',
  'models.probes',
  'models.word2vec',
  'train.analogies',
  'train.architectures.glove',
  'train.architectures.nnlm',
  'train.architectures.word2vec',
  'train.architectures.word_tables',
  'train.attention',
  'train.bench',
  'train.benches',
  'train.cli',
  'train.embed',
  'train.engine.soft_targets',
  'train.exports',
  'train.fill_mask',
  'train.generate',
  'train.language',
  'train.meanings',
  'train.minimal_pairs',
  'train.next_sentence',
  'train.ngram',
  'train.papers',
  'train.preflight',
  'train.pretrain.distillation',
  'train.probe',
  'train.probing',
  'train.score',
  'train.senses',
  'train.show_input',
  'train.similarity',
  'train.slices',
  'train.tables',
  'train.transfer.distillation',
  'train.transfer.teachers',
  'train.transfer.word_bodies',
  'train.transfer.word_checks',
  'train.transfer.word_program',
  'train.vectors',
  'train.views',
  'train.weights',
  'train.zero_shot',
)
MODULES = [
  path.relative_to(ROOT)
  for package in PACKAGES
  for path in sorted((ROOT / package).rglob('*.py'))
]


@functools.cache
def imports_in(source: str) -> dict[ast.Import | ast.ImportFrom, bool]:
  """Returns the import statements of a file, and whether each is at its top."""
  tree = ast.parse(source)
  return {
    node: node in tree.body
    for node in ast.walk(tree)
    if isinstance(node, ast.Import | ast.ImportFrom)
  }


def imported(path: pathlib.Path, top_level_only: bool = False) -> set[str]:
  """Returns the first names of all modules that a file imports."""
  names = set()
  for node, is_at_top in imports_in(path.read_text()).items():
    if top_level_only and not is_at_top:
      continue
    if isinstance(node, ast.Import):
      names |= {alias.name.partition('.')[0] for alias in node.names}
    else:
      assert node.level == 0, f'{path}: a relative import'
      names.add(node.module.partition('.')[0])
  return names


def forbidden(module: pathlib.PurePath, root: pathlib.Path = ROOT) -> set[str]:
  """Returns the names that a module imports and its package must not."""
  package, names = module.parts[0], imported(root / module)
  found = names & set(PACKAGES) - ALLOWED[package]
  if package == 'models':
    found |= names & {'ml_collections', 'orbax'}
    # Only published checkpoints are TensorFlow's.
    if 'pretrained' not in module.parts:
      found |= names & {'tensorflow'}
  if package == 'configs':
    found |= names - sys.stdlib_module_names
    found -= {'configs', 'data', 'ml_collections'}
  # TensorFlow is imported where it is used, so that all else works without it.
  heavy = {'tensorflow', 'tensorflow_datasets'}
  found |= imported(root / module, top_level_only=True) & heavy
  # PyTorch and its models are compared with ours, in tests/bench; one export
  # goes through them.
  if module.parts != ('train', 'exports', 'onnx_file.py'):
    found |= names & {'torch', 'transformers'}
  return found


def test_packages_import_only_what_they_may():
  found = {str(module): forbidden(module) for module in MODULES}
  assert not {module: names for module, names in found.items() if names}


def test_of_data_configs_import_the_recipes_of_tasks_alone():
  edges = imports_of(ROOT)
  found = {
    (module, other)
    for module, others in edges.items()
    if module.startswith('configs.')
    for other in others
    if not other.startswith('configs.')
  }
  assert found == {('configs.transfer', 'data.tasks.registry')}


@pytest.mark.parametrize(
  ('module', 'line', 'name'),
  [
    ('models/a.py', 'import train.main', 'train'),
    ('data/a.py', 'def use():\n  from models import bert', 'models'),
    ('models/a.py', 'import orbax.checkpoint', 'orbax'),
    ('models/a.py', 'def use():\n  import tensorflow', 'tensorflow'),
    ('models/pretrained/a.py', 'import tensorflow', 'tensorflow'),
    ('train/a.py', 'import tensorflow_datasets', 'tensorflow_datasets'),
    ('configs/a.py', 'import numpy', 'numpy'),
    ('train/run/a.py', 'def use():\n  import torch', 'torch'),
  ],
)
def test_a_forbidden_import_is_found(tmp_path, module, line, name):
  (tmp_path / module).parent.mkdir(parents=True)
  (tmp_path / module).write_text(line)
  assert forbidden(pathlib.PurePath(module), tmp_path) == {name}


def imports_of(root: pathlib.Path) -> dict[str, set[str]]:
  """Returns module -> the modules of ours that it imports, on use included."""
  paths = {}
  for package in PACKAGES:
    for path in (root / package).rglob('*.py'):
      name = '.'.join(path.relative_to(root).with_suffix('').parts)
      paths[name.removesuffix('.__init__')] = path
  edges = {}
  for name, path in paths.items():
    edges[name] = set()
    for node in imports_in(path.read_text()):
      if isinstance(node, ast.Import):
        found = {alias.name for alias in node.names}
      else:
        found = {f'{node.module}.{alias.name}' for alias in node.names}
        if not found <= paths.keys():
          found.add(node.module)
      edges[name] |= found & paths.keys()
  return edges


def problems_of(edges: dict[str, set[str]]) -> list[str]:
  """Returns every import that the order of the rooms does not allow."""
  problems = []
  for module, imported_modules in sorted(edges.items()):
    package, *rest = module.split('.')
    rooms = ROOMS.get(package, ())
    place = rooms.index(rest[0]) if rest and rest[0] in rooms else None
    for other in sorted(imported_modules - LIBRARIES):
      other_package, *other_rest = other.split('.')
      if other_package not in ROOMS or not other_rest:
        continue
      if other_rest[0] not in ROOMS[other_package]:
        problems.append(f'{module} imports the command {other}')
      elif (
        place is not None
        and other_package == package
        and rooms.index(other_rest[0]) > place
      ):
        problems.append(f'{module} imports {other} of a later room')
  try:
    graphlib.TopologicalSorter(edges).prepare()
  except graphlib.CycleError as error:
    problems.append(f'a circle: {" -> ".join(error.args[1])}')
  return problems


def is_of_ring(module: str) -> bool:
  return any(f'{module}.'.startswith(f'{name}.') for name in RING)


def crossings(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
  """Returns (module of the core, module of the ring that it imports)."""
  return {
    (module, other)
    for module, others in edges.items()
    if not is_of_ring(module)
    for other in others
    if is_of_ring(other)
  }


def test_the_core_does_not_know_the_ring():
  """Families, tasks, kinds and formats are loaded by the name of a config."""
  edges = imports_of(ROOT)
  assert all(any(is_of_ring(m) for m in edges if m.startswith(n)) for n in RING)
  assert not crossings(edges)
  # An import on use is found, too.
  edges['train.run.training'].add('train.papers.tables')
  assert crossings(edges) == {('train.run.training', 'train.papers.tables')}


def test_rooms_import_earlier_rooms_only():
  edges = imports_of(ROOT)
  assert not problems_of(edges)
  for package, rooms in ROOMS.items():
    folders = {path.parent.name for path in (ROOT / package).glob('*/*.py')}
    assert folders == set(rooms)


@pytest.mark.parametrize(
  ('module', 'line', 'problem'),
  [
    (
      'train/engine/steps.py',
      'from train.run import settings',
      'train.engine.steps imports train.run.settings of a later room',
    ),
    (
      'data/text/sources.py',
      'def use():\n  import data.store.corpus',
      'data.text.sources imports data.store.corpus of a later room',
    ),
    (
      'train/score.py',
      'from train import generate',
      'train.score imports the command train.generate',
    ),
    (
      'train/host/device.py',
      'def use():\n  from train.main import main',
      'train.host.device imports the command train.main',
    ),
    (
      'train/engine/state.py',
      'def use():\n  from train.engine.steps import row_keys',
      'a circle: ',
    ),
  ],
)
def test_a_wrong_import_is_found(tmp_path, module, line, problem):
  for package in PACKAGES:
    shutil.copytree(
      ROOT / package,
      tmp_path / package,
      ignore=shutil.ignore_patterns('__pycache__'),
    )
  with (tmp_path / module).open('a') as file:
    file.write(f'\n{line}\n')
  found = problems_of(imports_of(tmp_path))
  assert any(text.startswith(problem) for text in found), found


def test_everything_imports_and_trains_without_tensorflow(
  small_config, tmp_path
):
  names = [
    '.'.join(module.with_suffix('').parts).removesuffix('.__init__')
    for module in MODULES
  ]
  from train.run import settings

  overrides = settings.flatten(
    small_config(train__phases=((3, 32, 16, 'continue'),), mesh__data=1)
  )
  program = f"""
import importlib, sys
for name in ('tensorflow', 'tensorflow_datasets'):
  sys.modules[name] = None
for name in {names!r}:
  importlib.import_module(name)
from train.pretrain import job
from train.run import settings, training
config = settings.with_overrides(
  settings.load_config('bert_tiny'), {overrides!r}
)
results = training.train(job.make(config, {str(tmp_path)!r}), {str(tmp_path)!r})
assert results['steps'] == 3
"""
  environment = {
    name: value
    for name, value in launch.environment().items()
    if name.startswith(('JAX_', 'XLA_FLAGS', 'PYTHONPATH'))
  } | {'HOME': str(tmp_path)}
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


# Listings of folders whose names are ours, by pathlib, or of users' patterns.
LISTINGS = {
  'data/ngrams/counts.py',
  'data/storage.py',
  'data/store/folders.py',
  'data/text/text_files.py',
  'models/pretrained/weight_files.py',
  'train/cli.py',
  'train/host/chips.py',  # devices
  'train/papers/table_rows.py',
  'train/run/checkpoint.py',
  'train/run/mirror.py',
  'train/run/settings.py',
}


def test_folders_of_users_are_no_patterns():
  """`epath.Path.glob` takes a folder named 'exp [v2]' for a pattern, too."""
  found = {
    str(module)
    for module in MODULES
    if re.search(r'\.r?glob\(', (ROOT / module).read_text())
  }
  assert found == LISTINGS


def test_shell_scripts_are_sound():
  scripts = [str(path) for path in (ROOT / 'train').rglob('*.sh')]
  assert scripts
  # The wheel puts the program beside Python's own.
  shellcheck = pathlib.Path(sys.executable).with_name('shellcheck')
  done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True)
  assert done.returncode == 0, done.stdout


def test_a_command_stands_once_in_the_readme():
  # Fenced blocks, and cells of tables.
  commands = re.findall(
    r'(?:^|`)((?:pip install .* && )?python (?:-m )?[^`\n]+)',
    (ROOT / 'README.md').read_text(),
    re.MULTILINE,
  )
  assert len(commands) > 16
  assert len(set(commands)) == len(commands)


READMES = sorted(
  path.relative_to(ROOT)
  for pattern in ('README.md', '*/README.md', '*/README.zh.md')
  for path in ROOT.glob(pattern)
)
MODULE_NAMES = {'.'.join(path.with_suffix('').parts) for path in MODULES}


def unknown_names(text: str, folder: pathlib.Path) -> list[str]:
  """Returns links, commands, configs and keys in a text that do not exist."""
  unknown = [
    link
    for link in re.findall(r'\]\(([^)#]+)', text)
    if '://' not in link and not (folder / link).exists()
  ]
  unknown += [
    name
    for name in re.findall(r'`([a-z_/]+\.py)`', text)
    if not ((ROOT / name).exists() or any(folder.rglob(name)))
  ]
  unknown += [
    name
    for name in re.findall(r'python -m ((?:train|data)\.\w+)', text)
    if name not in MODULE_NAMES
  ]
  unknown += [
    name
    for name in re.findall(r'--config ([a-z]\w*)(?![\w/])', text)
    if not (ROOT / 'configs' / f'{name}.py').exists()
  ]
  keys = variants.all_keys()
  sections = '|'.join({key.partition('.')[0] for key in keys})
  unknown += [
    key
    for key in re.findall(rf'(?:--config\.|`)((?:{sections})\.\w+)', text)
    if key not in keys | MODULE_NAMES | {'model.safetensors'}
  ]
  return unknown


def test_readmes_name_what_exists():
  found = {
    str(path): unknown_names((ROOT / path).read_text(), (ROOT / path).parent)
    for path in READMES
  }
  assert not {path: names for path, names in found.items() if names}


@pytest.mark.parametrize(
  ('text', 'name'),
  [
    ('[data](dta/README.md)', 'dta/README.md'),
    ('python -m train.rival', 'train.rival'),
    ('see `models/rival.py` and `lstm.py`', 'models/rival.py'),
    ('--config bert_teeny', 'bert_teeny'),
    ('--config.train.stesp=3', 'train.stesp'),
    ('set `init.weight`', 'init.weight'),
  ],
)
def test_an_unknown_name_is_found(text, name):
  assert unknown_names(text, ROOT) == [name]


# ---- Tests -----------------------------------------------------------------

# Files of over 100 lines that tests of other files hold.
UNTESTED_BY_NAME = {
  'data/inputs/features.py',  # test_framing
  'train/architectures/architecture.py',  # test_families
  'train/architectures/samples.py',  # the families' tests
  'train/engine/state.py',  # test_sharding
  'train/host/device.py',  # run/test_ledger
  'train/host/huge_pages.py',  # engine/test_memory
  'train/pretrain/assemble.py',  # test_job
  'train/run/failure.py',  # test_training, host/test_processes
  'train/run/job.py',  # test_training
  'train/transfer/word_bodies.py',  # test_word_program
  'train/transfer/word_checks.py',  # test_word_program
}


def test_each_long_file_has_a_test_file_of_its_name():
  missing = set()
  for module in MODULES:
    # test_doors, test_gs_commands and the rooms' tests run the doors.
    if module.parts[0] == 'configs' or module.parent.name == 'train':
      continue
    long = len((ROOT / module).read_text().splitlines()) > 100
    test = ROOT / 'tests' / module.with_name(f'test_{module.name}')
    if long and not test.exists():
      missing.add(str(module))
  assert missing <= UNTESTED_BY_NAME
  assert len(UNTESTED_BY_NAME) <= 12


# ---- One of everything -----------------------------------------------------

FAMILIES = {'bert', 'gpt', 'gpt2', 'elmo', 'lstm', 'nnlm', 'word2vec', 'glove'}
MODULES_OF_FAMILIES = {
  'Bert',
  'Gpt',
  'Elmo',
  'LstmLm',
  'Nnlm',
  'Word2Vec',
  'Glove',
}


def family_tests(source: str) -> list[str]:
  """Returns the expressions that ask for a family by its name or type."""

  def names_a_family(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
      return node.value in FAMILIES
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
      return any(map(names_a_family, node.elts))
    return False

  found = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Compare):
      if any(map(names_a_family, (node.left, *node.comparators))):
        found.append(ast.unparse(node))
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == 'isinstance':
      types = {
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in ast.walk(node.args[1])
        if isinstance(part, ast.Attribute | ast.Name)
      }
      if types & MODULES_OF_FAMILIES:
        found.append(ast.unparse(node))
  return found


def test_families_are_told_apart_by_their_table():
  found = {
    str(module): tests
    for module in MODULES
    if module.parts[0] in ('train', 'data')
    and module.parts[:2] != ('train', 'architectures')
    and (tests := family_tests((ROOT / module).read_text()))
  }
  assert sum(map(len, found.values())) <= 3, found
  assert family_tests("if config.model.name in ('gpt', 'gpt2'): pass")
  assert family_tests('x = isinstance(model, bert.Bert | gpt.Gpt)')


def test_one_loop_trains():
  loops = [
    module
    for module in MODULES
    if module.parts[0] == 'train'
    and 'Watchdog(config' in (ROOT / module).read_text()
  ]
  assert loops == [pathlib.Path('train/run/training.py')]


# Modules that open trained models -> the functions and methods that they use:
# `opened.open_weights` reads names and sizes, `Weights.load` the parameters.
# All that is made with a trained model takes a `TrainedModel`.
OPENINGS = {
  'train/params/opened.py': {'open_folder', 'restore_params'},
  'train/vectors/trained_model.py': {'open_weights', 'load'},
  # A run begins with weights, continues, or writes them in another format.
  'train/params/convert.py': {'open_weights', 'load'},
  'train/exports/folders.py': {'open_weights', 'load'},
  'train/params/warm_start.py': {'open_weights', 'load'},
  'train/params/kept_layers.py': {'load'},
  'train/pretrain/distillation.py': {'open_weights', 'load'},  # the teacher
  'train/run/training.py': {'restore_params'},
  'train/transfer/encoders.py': {'open_weights', 'load'},
  # The model of a finished fine-tuning: its reader loads it, and a figure shows
  # two of its parameters.
  'train/transfer/predictors.py': {'load'},
  'train/transfer/distillation.py': {'load'},  # the teacher, once
  'train/transfer/word_program.py': {'open_weights', 'load_params'},
  'train/papers/layer_weights.py': {'restore_params'},
  # Families are refused in words of the command's own, or named in a table.
  'train/meanings/words/model_vectors.py': {'open_weights'},
  'train/papers/tables.py': {'open_weights'},
  'train/vectors/embedder.py': {'open_weights'},
  'train/views/attention_weights.py': {'open_weights'},
  'train/benches/host.py': {'open_weights', 'load'},
}
OPENERS = {'open_weights', 'open_folder', 'restore_params', 'load_params'}


def openings(source: str) -> set[str]:
  """Returns the functions and methods that a module opens trained models by."""
  found, imported_names = set(), set()
  nodes = list(ast.walk(ast.parse(source)))
  for node in nodes:
    if isinstance(node, ast.Import | ast.ImportFrom):
      names = {alias.name.rpartition('.')[2] for alias in node.names}
      found |= names & OPENERS
      imported_names |= {alias.asname or alias.name for alias in node.names}
    elif isinstance(node, ast.Attribute) and node.attr in OPENERS:
      found.add(node.attr)
  for node in nodes:
    # `load` of an object; of a module it reads something else.
    if (
      isinstance(node, ast.Call)
      and isinstance(node.func, ast.Attribute)
      and node.func.attr == 'load'
      and ast.unparse(node.func.value) not in imported_names
    ):
      found.add('load')
  return found


def test_trained_models_are_opened_in_one_way():
  found = {
    str(module): names
    for module in MODULES
    if module.parts[0] == 'train'
    and (names := openings((ROOT / module).read_text()))
  }
  assert found == OPENINGS


@pytest.mark.parametrize(
  ('source', 'names'),
  [
    ('found = opened.open_weights(path)', {'open_weights'}),
    ('params = weights.load()', {'load'}),
    ('params = opened.open_weights(x).load(y)', {'open_weights', 'load'}),
    ('from train.run.checkpoint import restore_params', {'restore_params'}),
    ('import json\nfacts = json.load(file)', set()),
    ('from data.vocabulary import tokenization as t\nt.load(path)', set()),
  ],
)
def test_an_opening_is_found(source, names):
  assert openings(source) == names


def names_used_twice(package: str) -> dict[str, list[str]]:
  """Returns the names of classes that several files of a package define."""
  files = collections.defaultdict(list)
  for path in sorted((ROOT / package).rglob('*.py')):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.ClassDef):
        files[node.name].append(str(path.relative_to(ROOT)))
  return {name: found for name, found in files.items() if len(found) > 1}


def test_a_class_has_a_name_of_its_own_in_its_package():
  assert not {
    name: files
    for package in PACKAGES
    for name, files in names_used_twice(package).items()
  }


def lines_with_any(source: str) -> int:
  return sum(bool(re.search(r'\bAny\b', line)) for line in source.splitlines())


def test_signatures_say_what_goes_in():
  """`Any` is for trees of anything and for settings that are passed on."""
  found = {
    str(module): count
    for module in MODULES
    if module.parts[0] == 'train'
    and (count := lines_with_any((ROOT / module).read_text()))
  }
  assert sum(found.values()) <= 100, found
  assert lines_with_any('from typing import Any\n\ndef f(x: Any): pass') == 2
  assert not lines_with_any('def f(x: Anyone): any(x)')


def test_a_function_that_checks_says_what():
  found = [
    f'{module}:{node.lineno}'
    for module in MODULES
    for node in ast.walk(ast.parse((ROOT / module).read_text()))
    if isinstance(node, ast.FunctionDef) and node.name == 'check'
  ]
  assert not found


def test_an_option_of_several_values_keeps_those_of_each_time():
  """With argparse's default, --beside A --beside B would be B alone."""
  lost = []
  for path in MODULES:
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
      if not isinstance(node, ast.Call) or not node.args:
        continue
      given = {word.arg: ast.unparse(word.value) for word in node.keywords}
      option = ast.unparse(node.args[0]).startswith("'--")
      if option and given.get('nargs') in ("'+'", "'*'"):
        if 'action' not in given and None not in given:  # None: **options
          lost.append(f'{path}: {ast.unparse(node.args[0])}')
  assert not lost
