"""Small labelled sets that a small BERT learns in seconds, and its weights."""

import json
import random

from train.run import settings

NOUNS = ('function', 'value', 'class', 'module', 'name', 'object', 'list')
GOOD, BAD = ('returns', 'gives'), ('raises', 'deletes')


def write_jsonl(path, records):
  path.write_text(''.join(json.dumps(record) + '\n' for record in records))


def sentences(count, seed):
  """Yields (text, label): what the verb decides."""
  chance = random.Random(seed)
  for _ in range(count):
    label = chance.choice(['good', 'bad'])
    verb = chance.choice(GOOD if label == 'good' else BAD)
    first, second = chance.sample(NOUNS, 2)
    tail = ' '.join(chance.choices(NOUNS, k=chance.randrange(12)))
    yield f'the {first} {verb} a {second} {tail}'.strip(), label


def write_sentences(folder, sizes=(96, 32, 16)):
  """Writes train.jsonl, dev.jsonl and a test.jsonl without labels."""
  folder.mkdir(parents=True, exist_ok=True)
  for seed, (name, count) in enumerate(
    zip(('train', 'dev', 'test'), sizes, strict=True)
  ):
    records = [
      {'text': text, 'label': label} for text, label in sentences(count, seed)
    ]
    if name == 'test':
      records = [{'text': record['text']} for record in records]
    write_jsonl(folder / f'{name}.jsonl', records)
  return folder


def write_sst2(folder, sizes=(48, 16)):
  """Writes train.tsv and dev.tsv as SST-2 has them."""
  folder.mkdir(parents=True, exist_ok=True)
  for seed, (name, count) in enumerate(
    zip(('train', 'dev'), sizes, strict=True)
  ):
    rows = [f'{a}\t{int(b == "good")}' for a, b in sentences(count, seed)]
    text = '\n'.join(['sentence\tlabel', *rows])
    (folder / f'{name}.tsv').write_text(f'{text}\n')


def small_config(folder, weights, **overrides):
  """Returns the config of a run of seconds."""
  return settings.with_overrides(
    settings.load_config('transfer:task=own'),
    {
      'model.scan_layers': True,
      'task.max_length': 32,
      'own.kind': 'classification',
      'own.test': 'test.jsonl',
      'data.source': str(folder),
      'init.weights': str(weights),
      'data.bucket': False,  # programs of one length
      'data.loader': 'plain',
      'optim.name': 'adamw',
      'optim.learning_rate': 5e-3,
      'train.platform': 'cpu',
      'train.global_batch': 16,
      'train.num_epochs': 5.0,
      'train.select': 'best',
      'train.log_every': 4,
      'train.peak_tflops': 0.1,
      'eval.global_batch': 16,
      **{key.replace('__', '.'): value for key, value in overrides.items()},
    },
  ).lock()
