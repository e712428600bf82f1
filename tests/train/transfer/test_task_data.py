"""A new task is one file and one row; wrong files are named by their lines."""

import importlib.util
import pathlib
import shutil
import sys

import numpy as np
import pytest
import runs
import small_kinds
import small_tasks

from data import tasks
from data.tasks import registry
from train.run import settings

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.mark.parametrize(
  ('name', 'line', 'text', 'message'),
  [
    ('train.jsonl', 3, '{"text": "a"}', r'train\.jsonl, line 3: .*label'),
    ('train.jsonl', 2, '{"text": "a", ', r'train\.jsonl, line 2: '),
    ('dev.jsonl', 4, '{"text": "a", "label": "so so"}', r"line 4: .*'so so'"),
    ('dev.jsonl', 1, '{"text": " ", "label": "bad"}', r'line 1, .*empty text'),
    ('test.jsonl', 5, '{"label": "bad"}', r'test\.jsonl, line 5: .*text'),
  ],
)
def test_lines_that_are_wrong(
  own_set, small_bert, tmp_path, name, line, text, message
):
  folder = tmp_path / 'set'
  shutil.copytree(own_set, folder)
  lines = (folder / name).read_text().splitlines()
  lines[line - 1] = text
  (folder / name).write_text('\n'.join(lines) + '\n')
  config = small_tasks.small_config(folder, small_bert)
  with pytest.raises(ValueError, match=message):
    runs.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('kind', 'changes', 'message'),
  [
    ('own pairs', {'own.text': ('first', 'third')}, r'train\.tsv.*third'),
    ('own pairs', {'own.dev': 'none.tsv'}, r'none\.tsv'),
    ('own pairs', {'own.test': 'none.tsv'}, r'none\.tsv'),
    ('own pairs', {'own.label': 'first'}, r'dev\.tsv, line \d+: '),
    ('own scores', {'own.kind': 'classification'}, 'score|label'),
    ('own tags', {'own.kind': 'span'}, r'train\.jsonl, line 1: '),
    ('rte', {'task.name': 'mnli'}, r'train\.tsv, line 1: .*gold_label'),
    ('swag', {'task.name': 'squad1'}, r'train-v1\.1\.json'),
    ('conll2003', {'task.max_length': 4}, 'task.max_length=4'),
    ('own scores', {'task.class_weights': (1.0, 2.0)}, 'class_weights'),
    ('own scores', {'task.soft_classes': 3}, 'soft_classes=3'),
    ('own pairs', {'task.features': 'sum_last_4'}, 'has 2|last 4'),
    ('own pairs', {'own.metrics': ('bleu',)}, 'bleu'),
  ],
)
def test_settings_that_do_not_fit_the_files(
  small_bert, tmp_path, kind, changes, message
):
  folder = tmp_path / 'set'
  changes = {'own.test': None} | small_kinds.write(folder, kind) | changes
  config = small_tasks.small_config(folder, small_bert, **changes)
  with pytest.raises((ValueError, OSError), match=message):
    runs.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


TOY = """
from data.tasks import examples, files, glue


def rows(file, split):
  records = files.read_jsonl(file, ('label',), ('text',))
  return glue.text_examples(records, ('text',), 'label')


TOY = examples.Task(
  name='toy',
  title='Toy',
  kind='classification',
  files={split: (f'{split}.jsonl',) for split in ('train', 'dev')},
  rows=rows,
  folders=('toys',),
  labels=('bad', 'good'),
  sizes={'train': 16},
  recipe={'stable': {'optim.learning_rate': 1e-3}},
)

TASKS = (TOY,)
"""


@pytest.fixture
def register(tmp_path, monkeypatch):
  """Registers the toy as the docstring of the registry says."""
  file = tmp_path / 'toy.py'
  file.write_text(TOY)
  spec = importlib.util.spec_from_file_location('data.tasks.toy', file)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  monkeypatch.setitem(sys.modules, spec.name, module)
  monkeypatch.setattr(tasks, 'toy', module, raising=False)
  source = pathlib.Path(registry.__file__).read_text()
  edited = source.replace("  'race': (", "  'toy': ('toy',),\n  'race': (")
  assert edited.count('toy') == source.count('toy') + 2
  names = {'__name__': registry.__name__}
  exec(compile(edited, registry.__file__, 'exec'), names)
  monkeypatch.setattr(registry, 'TASKS', names['TASKS'])


def test_a_recipe_is_a_field_of_the_task(register):
  config = settings.load_config('transfer:task=toy,recipe=stable')
  assert config.optim.learning_rate == 1e-3
  assert config.train.num_epochs == 20.0  # it is small
  config = settings.load_config('transfer:task=toy')
  assert config.optim.learning_rate == 1e-4


@pytest.mark.slow
def test_a_toy_is_learnt(register, small_bert, tmp_path):
  folder = small_tasks.write_sentences(tmp_path / 'toys', (16, 8, 4))
  config = small_tasks.small_config(
    folder, small_bert, task__name='toy', train__steps=2
  )
  results = runs.train(config, tmp_path / 'run')
  assert results['steps'] == 2
  assert np.isfinite(results['metrics']['eval/toy/accuracy'])
