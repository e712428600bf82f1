"""Wrong input is named by file and line, and nothing is left behind."""

import shutil

import pytest
import small_kinds
import small_tasks

from train.transfer import finetune

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.mark.parametrize(
  ('name', 'line', 'text', 'message'),
  [
    ('train.jsonl', 3, '{"text": "a"}', r'train\.jsonl, line 3: .*label'),
    ('train.jsonl', 2, '{"text": "a", ', r'train\.jsonl, line 2: '),
    ('dev.jsonl', 4, '{"text": "a", "label": "so so"}', r"line 4: .*'so so'"),
    ('dev.jsonl', 1, '{"text": " ", "label": "bad"}', r'line 1: .*empty text'),
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
    finetune.train(config, tmp_path / 'run')
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
    finetune.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
