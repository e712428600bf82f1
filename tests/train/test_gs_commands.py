"""Every command with gs:// in all its arguments, in this process."""

import csv
import gzip
import io
import json
import os
import pydoc_data.topics
import sys

import h5py
import pytest
import runs
import small_published
import small_tasks

import train.embed
import train.fill_mask
import train.generate
import train.predict
import train.report
import train.score
import train.similarity
import train.weights
import train.zero_shot
from data import prepare
from data.vocabulary import tokenization
from train.benches.loopback import Fault
from train.language import zero_shot
from train.papers import table_rows

BUCKET = 'every-command'
GS = f'gs://{BUCKET}'


@pytest.fixture(scope='module')
def there(loopback, small_store, tmp_path_factory):
  """Objects of a bucket, with the input of every command, by their names."""
  objects = loopback.storage.buckets[BUCKET] = {}
  folder = tmp_path_factory.mktemp('there')
  tokenizer = tokenization.load(small_store)
  small_published.write_bert(folder / 'bert', tokenizer)
  texts = list(pydoc_data.topics.topics.values())[:20]
  byte_bpe = tokenization.train(
    texts, tokenization.parse_training('train:bytebpe:400')
  )
  small_published.write_gpt(folder / 'gpt2', byte_bpe)
  small_tasks.write_sentences(folder / 'own', sizes=(32, 16, 16))
  (folder / 'text').mkdir()
  (folder / 'text' / 'a.txt').write_text('\n\n'.join(texts[:10]))
  (folder / 'text' / 'b.txt.gz').write_bytes(
    gzip.compress('\n\n'.join(texts[10:]).encode())
  )
  for name, text in {
    'lines.txt': 'The value is a name.\nA list.\n',
    'pairs.tsv': 'A list.\tA name.\n',
    'masks.txt': 'The [MASK] is here.\n',
    'prompts.jsonl': '{"prompt": "The value"}\n',
  }.items():
    (folder / name).write_text(text)
  for path in folder.rglob('*'):
    if path.is_file():
      name = str(path.relative_to(folder))
      loopback.storage.put(BUCKET, name, path.read_bytes())
  return objects


@pytest.fixture
def run(there, monkeypatch, capsys, tmp_path):
  """Returns a function (door, arguments) -> (standard output, errors)."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(os, '_exit', sys.exit)

  def run(door, *arguments):
    monkeypatch.setattr(sys, 'argv', [door.__name__, *arguments])
    capsys.readouterr()
    try:
      door.main()
    except SystemExit as ended:
      assert ended.code == 1
    said = capsys.readouterr()
    return said.out, said.err

  return run


def test_prepare(there, run):
  code = prepare.main(
    ['--source', f'{GS}/text', '--tokenizer', f'{GS}/bert/vocab.txt']
    + ['--out', f'{GS}/store', '--workers', '1', '--document_break', 'file']
  )
  assert code == 0
  meta = json.loads(there['store/store.json'].data)
  assert meta['audit']['documents'] == 2
  assert all(len(there[f'store/{name}'].data) for name in meta['files'])


@pytest.mark.parametrize('name', ['v.h5', 'v.jsonl'])
def test_embed(there, run, name, loopback):
  # Reading fails in every way on the way.
  loopback.faults[:] = [
    Fault('GET .*model.safetensors$', cut=True),
    Fault('GET .*lines.txt$', status=503),
  ]
  arguments = (f'{GS}/bert', f'{GS}/lines.txt', f'{GS}/out/{name}')
  _, said = run(train.embed, *arguments, '--unit=sentence')
  if name == 'v.h5':
    assert not any(fault.left for fault in loopback.faults)
    assert f'copying {GS}/bert/model.safetensors (0.' in said
    with h5py.File(io.BytesIO(there[f'out/{name}'].data)) as file:
      assert file['0'].shape == (32,)
  else:
    assert len(there[f'out/{name}'].data.splitlines()) == 2
  loopback.faults.clear()
  _, said = run(train.embed, *arguments)
  assert said == (
    f'error: {GS}/out/{name} is already there; --overwrite replaces it at the'
    ' end\n'
  )


def test_similarity(run):
  out, _ = run(train.similarity, f'{GS}/bert', f'{GS}/pairs.tsv')
  assert out.endswith('A list.\tA name.\n')


def test_fill_mask(run):
  options = ('--tokenizer', f'{GS}/bert', '--top_k', '2', '--json')
  out, _ = run(
    train.fill_mask, f'{GS}/bert', '--input', f'{GS}/masks.txt', *options
  )
  assert json.loads(out.splitlines()[0])['text'] == 'The [MASK] is here.'


@pytest.mark.slow
def test_generate_and_score(there, run):
  written = f'{GS}/out/texts.jsonl'
  options = ('--max_new_tokens', '2', '--batch', '1', '--output', written)
  prompts = ('--input', f'{GS}/prompts.jsonl')
  out, _ = run(train.generate, f'{GS}/gpt2', *prompts, *options)
  assert out == f'1 texts are in {written}\n'
  found = json.loads(there['out/texts.jsonl'].data)
  assert found['prompt'] == 'The value'
  table = ('--log_probs', f'{GS}/out/tokens.csv', '--json')
  out, _ = run(train.score, f'{GS}/gpt2', f'{GS}/lines.txt', *table)
  rows = list(csv.reader(there['out/tokens.csv'].data.decode().splitlines()))
  assert len(rows) == 1 + json.loads(out)['scored_tokens']


def test_zero_shot(there, run, loopback):
  names = [f'stories/{i}.story' for i in range(2)]
  for name in names:
    loopback.storage.put(BUCKET, name, b'A text.\n@highlight\nIt is.\n')
  assert len(zero_shot.read_stories(f'{GS}/stories')) == 2
  loopback.storage.put(BUCKET, 'coqa.json', b'{"data": []}')
  _, said = run(train.zero_shot, f'{GS}/gpt2', 'coqa', f'{GS}/coqa.json')
  assert said == f'error: {GS}/coqa.json: holds nothing to do\n'


@pytest.mark.slow
def test_weights(there, run):
  out, _ = run(train.weights, 'inspect', f'{GS}/bert', '--json')
  assert json.loads(out)['architecture'] == 'bert'
  for job, *folders in (
    ('import', f'{GS}/bert', f'{GS}/imported'),
    ('export', f'{GS}/imported', f'{GS}/exported'),
  ):
    out, _ = run(train.weights, job, *folders)
    assert out == '{} is written to {}.\n'.format(*folders)
  for name in ('model.safetensors', 'vocab.txt'):
    assert there[f'exported/{name}'].data == there[f'bert/{name}'].data
  out, _ = run(train.weights, 'inspect', f'{GS}/exported', '--json')
  assert json.loads(out)['sizes']['num_layers'] == 2


@pytest.mark.slow
def test_fine_tuning(there, run, monkeypatch):
  runs.see_one_device(monkeypatch)
  config = small_tasks.small_config(
    f'{GS}/own',
    f'{GS}/bert',
    own__dev=f'{GS}/own/dev.jsonl',
    train__num_epochs=1.0,
  )
  results = runs.train(config, f'{GS}/tuned')
  assert json.loads(there['tuned/results.json'].data)['steps'] == 2
  assert results['steps'] == 2
  arguments = ('--input', f'{GS}/own/test.jsonl')
  written = f'{GS}/out/answers.jsonl'
  out, _ = run(train.predict, f'{GS}/tuned', *arguments, '--output', written)
  assert out.startswith(f'16 answers are in {written}\n')
  assert len(there['out/answers.jsonl'].data.splitlines()) == 16
  out, _ = run(train.report, f'{GS}/tuned', '--out', f'{GS}/drawn', '--json')
  assert json.loads(out)['steps_done'] == 2
  assert there['drawn/curves.png'].data.startswith(b'\x89PNG')


def test_tables(there):
  table = table_rows.load_table('bert/glue')
  given = [f'{GS}/bert', f'mine={GS}/bert', f'{GS}/a=b/other']
  assert table_rows.name_weights(table, given) == {
    'bert': f'{GS}/bert',
    'mine': f'{GS}/bert',
    'other': f'{GS}/a=b/other',
  }


@pytest.mark.parametrize(
  ('weights', 'given', 'written', 'message'),
  [
    ('bert', 'lines.txt', 'gs:/x/v.h5', 'gs:/x/v.h5: expected gs://BUCKET/NA'),
    ('bert', 'own', 'v.h5', f'{GS}/own: is a folder, expected a file'),
    ('bert', 'none', 'v.h5', f'{GS}/none: no such file'),
    ('bert', 'lines.txt', 'own', f'{GS}/own is a folder, expected a file'),
    ('bert/vocab.txt', 'lines.txt', 'v.h5', 'is no folder'),
    ('none', 'lines.txt', 'v.h5', f'{GS}/none: there is no such file or fol'),
    ('own', 'lines.txt', 'v.h5', 'it holds dev.jsonl, test.jsonl, train.jso'),
  ],
)
def test_bad_input_is_one_line(run, weights, given, written, message):
  written = written if ':' in written else f'{GS}/{written}'
  out, said = run(train.embed, f'{GS}/{weights}', f'{GS}/{given}', written)
  assert not out and said.startswith('error: ') and message in said
  assert said.count('\n') == 1


def test_no_permission(there, run, loopback):
  loopback.storage.refuses.add('create')
  for door, *arguments in (
    (train.embed, f'{GS}/bert', f'{GS}/lines.txt', f'{GS}/v.h5'),
    (train.weights, 'export', f'{GS}/bert', f'{GS}/v'),
    (train.predict, f'{GS}/x', '--input', f'{GS}/own', '--output', f'{GS}/v'),
  ):
    _, said = run(door, *arguments)
    assert said.startswith(f'error: {GS}/v')
    assert 'no permission for storage.objects.create. The owner' in said
  loopback.storage.refuses.clear()
