"""Tasks out of TFDS: what TFDS itself writes by its own declarations."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from data.tasks import examples, registry, tfds_records

# Writes tiny data sets with the features of TFDS's own builders, so that names,
# label orders and nesting are theirs; then loads them as tasks.
SCRIPT = """
import collections, dataclasses, json, sys
import tensorflow_datasets as tfds
from data.tasks import registry

folder = sys.argv[1]
pair = {'sentence1': 'A "x.', 'sentence2': 'Ü.'}
nli = {'premise': 'A.', 'hypothesis': 'B.'}
article = {'article': 'Text.', 'questions': ['Q1', 'Q2'], 'answers': ['B', 'D'],
           'options': [list('wxyz'), list('abcd')]}
languages = 'ar bg de el en es fr hi ru sw th tr ur vi zh'.split()
answers = {'text': ['Ann', 'Ann ran'], 'answer_start': [0, 0]}
question = {'title': 'T', 'context': 'Ann ran.', 'question': ' Who? '}
none = {'text': [], 'answer_start': []}
words = {'tokens': ['Ann', 'ran', 'Bob'], 'pos': ['NNP', 'VBD', 'NNP'],
         'chunks': ['B-NP', 'B-VP', 'B-NP'], 'ner': ['B-PER', 'O', 'I-LOC']}
sets = {
  'glue/mrpc': {'validation': [{**pair, 'label': 'equivalent', 'idx': 9}]},
  'glue/stsb': {'train': [{**pair, 'label': 4.5, 'idx': 0}],
                'test': [{**pair, 'label': -1.0, 'idx': 0}]},
  'glue/mnli': {'train': [{**nli, 'label': 'contradiction', 'idx': 3}],
                'validation_mismatched':
                  [{**nli, 'label': 'neutral', 'idx': 4}]},
  'glue/ax': {'test': [{**nli, 'label': -1, 'idx': 5}]},
  'snli': {'train': [{**nli, 'label': 'entailment'}, {**nli, 'label': -1}]},
  'xnli': {'test': [{
    'premise': {name: f'{name} A.' for name in languages},
    'hypothesis': {name: f'{name} B.' for name in languages},
    'label': 'contradiction'}]},
  'race/middle': {'dev': [{**article, 'example_id': 'middle1.txt'}]},
  'race/high': {'dev': [{**article, 'example_id': 'high1.txt'}]},
  'squad/v2.0': {'validation': [
    {**question, 'id': 'a', 'answers': answers, 'plausible_answers': none,
     'is_impossible': False},
    {**question, 'id': 'b', 'answers': none, 'plausible_answers': answers,
     'is_impossible': True}]},
  'conll2003': {'dev': [words]},
  'wikiann/zh': {'test': [{'tokens': ['Ann', 'ran'], 'tags': ['B-ORG', 'O'],
                           'langs': ['zh', 'zh'], 'spans': ['ORG: Ann']}]},
  'ag_news_subset': {'test': [
    {'title': 'Ann', 'description': 'ran.', 'label': 'Sci/Tech'}]},
}
for name, splits in sets.items():
  builder = tfds.builder(name, data_dir=folder, try_gcs=False)
  tfds.dataset_builders.store_as_tfds_dataset(
    name=name.partition('/')[0],
    config=builder.builder_config and builder.builder_config.name,
    version=str(builder.version),
    data_dir=folder,
    features=builder.info.features,
    split_datasets={
      split: list(enumerate(records)) for split, records in splits.items()})
found = {'labels': {}}
for task in registry.TASKS.values():
  name = task.tfds and task.tfds.names
  if task.kind == 'classification' and name not in (None, 'xnli'):
    features = tfds.builder(name, data_dir=folder, try_gcs=False).info
    found['labels'][task.name] = [
      (name, task.tfds.read(collections.defaultdict(str, label=i), 'dev', 0))
      for i, name in enumerate(features.features['label'].names)]
for task, split in json.loads(sys.argv[2]):
  examples = registry.load(registry.find(task), f'tfds:{folder}', split)
  found[f'{task} {split}'] = [dataclasses.astuple(e) for e in examples]
print(json.dumps(found, default=lambda e: e.label))
"""
SPLITS = [
  ('mrpc', 'dev'),
  ('stsb', 'train'),
  ('stsb', 'test'),
  ('mnli', 'train'),
  ('mnli', 'dev_mismatched'),
  ('mnli', 'diagnostic'),
  ('snli', 'train'),
  ('xnli', 'train'),
  ('xnli', 'test'),
  ('xnli', 'test@de'),
  ('panx_en', 'test@zh'),
  ('race', 'dev'),
  ('squad2', 'dev'),
  ('conll2003', 'dev'),
  ('panx_zh', 'test'),
  ('ag_news', 'dev'),
]


@pytest.mark.slow
def test_what_tfds_wrote_is_read(tmp_path):
  """In a process of its own, which ends with TensorFlow's threads."""
  env = os.environ | {'TF_CPP_MIN_LOG_LEVEL': '3'}
  command = [sys.executable, '-c', SCRIPT, str(tmp_path), json.dumps(SPLITS)]
  done = subprocess.run(
    command, env=env, capture_output=True, text=True, timeout=120
  )
  assert done.returncode == 0, done.stderr
  found = json.loads(done.stdout.splitlines()[-1])
  for task, labels in found['labels'].items():
    told = registry.find(task).labels
    for i, (name, label) in enumerate(labels):
      # Named alike, or by the number.
      example = label[0] if isinstance(label, list) else label
      assert example == (name if name in told else str(i)), task
  assert len(found['labels']) == 11
  pair = ['A "x.', 'Ü.']
  texts = ['A.', 'B.']
  assert found['mrpc dev'] == [['9', pair, '1', '']]
  assert found['stsb train'] == [['0', pair, 4.5, '']]
  assert found['stsb test'] == [['0', pair, None, '']]
  assert found['mnli train'] == [['3', texts, 'contradiction', '']]
  assert found['mnli dev_mismatched'] == [['4', texts, 'neutral', '']]
  assert found['mnli diagnostic'] == [['5', texts, None, '']]
  assert found['snli train'] == [['0', texts, 'entailment', '']]
  assert found['xnli train'] == [['3', texts, 'contradiction', 'en']]
  assert len(found['xnli test']) == 15
  german = ['de-0', ['de A.', 'de B.'], 'contradiction', '']
  assert found['xnli test@de'] == [german]
  assert found['panx_en test@zh'] == found['panx_zh test']
  assert found['xnli test'][0] == [
    'en-0',
    ['en A.', 'en B.'],
    'contradiction',
    'en',
  ]
  assert [(e[0], e[5], e[4]) for e in found['race dev']] == [
    ('middle1.txt-0', 'middle', 1),
    ('middle1.txt-1', 'middle', 3),
    ('high1.txt-0', 'high', 1),
    ('high1.txt-1', 'high', 3),
  ]
  assert found['race dev'][3][1:4] == ['Text.', 'Q2', ['a', 'b', 'c', 'd']]
  assert found['squad2 dev'] == [
    ['a', 'Who?', 'Ann ran.', [['Ann', 0], ['Ann ran', 0]], True],
    ['b', 'Who?', 'Ann ran.', [], True],
  ]
  assert found['conll2003 dev'][0][1:3] == [
    ['Ann', 'ran', 'Bob'],
    ['B-PER', 'O', 'B-LOC'],
  ]
  assert found['panx_zh test'][0][1:3] == [['Ann', 'ran'], ['B-ORG', 'O']]
  assert found['ag_news dev'] == [['0', ['Ann ran.'], 'Sci/Tech', '']]


def test_records_are_checked_as_files_are():
  task = registry.find('rte')
  record = {'sentence1': b'A.', 'sentence2': b' ', 'label': np.int64(0)}
  with pytest.raises(
    ValueError, match='TFDS glue/rte, record 0: found an empty text 2 of 2'
  ):
    tfds_records.gather(task, 'train', [('glue/rte', record)])
  record['sentence2'] = b'\xff'
  with pytest.raises(
    ValueError, match='record 0: found bytes that are not UTF'
  ):
    tfds_records.gather(task, 'train', [('glue/rte', record)])
  record |= {'sentence2': b'B.', 'label': np.int64(-1), 'idx': np.int32(3)}
  assert tfds_records.gather(task, 'test', [('glue/rte', record)]) == [
    examples.TextExample('3', ('A.', 'B.'), None)
  ]
  with pytest.raises(ValueError, match='record 0: found no label, expected'):
    tfds_records.gather(task, 'train', [('glue/rte', record)])
  with pytest.raises(ValueError, match='TFDS glue/rte, split dev: found no ex'):
    tfds_records.gather(task, 'dev', [])


def test_what_tfds_has_not_is_told():
  swag = registry.find('swag')
  assert not registry.has_split(swag, 'tfds', 'train')
  assert registry.has_split(registry.find('squad1'), 'tfds', 'train')
  assert not registry.has_split(registry.find('squad1'), 'tfds', 'test')
  with pytest.raises(
    ValueError, match="task swag: TFDS has no split 'train'.*folder of its file"
  ):
    registry.load(swag, 'tfds', 'train')
