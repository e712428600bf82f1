"""A new task is one file and its row in data/tasks/registry.py."""

import importlib.util
import pathlib
import sys

import numpy as np
import pytest
import small_tasks

from data import tasks
from data.tasks import registry
from train.transfer import finetune

pytestmark = pytest.mark.usefixtures('one_device')
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
  edited = source.replace('  tfds_records,\n)', '  tfds_records,\n  toy,\n)')
  edited = edited.replace('squad, conll)', 'squad, conll, toy)')
  assert edited.count('toy') == source.count('toy') + 2
  names = {'__name__': registry.__name__}
  exec(compile(edited, registry.__file__, 'exec'), names)
  monkeypatch.setattr(registry, 'TASKS', names['TASKS'])


def test_a_toy_is_learnt(register, small_bert, tmp_path):
  folder = small_tasks.write_sentences(tmp_path / 'toys', (16, 8, 4))
  config = small_tasks.small_config(
    folder, small_bert, task__name='toy', train__steps=2
  )
  results = finetune.train(config, tmp_path / 'run')
  assert results['steps'] == 2
  assert np.isfinite(results['metrics']['eval/toy/accuracy'])
