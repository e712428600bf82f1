"""What systems take to read texts: programs, figures and their picture."""

import functools
import subprocess
import sys

import jax
import numpy as np
import pytest

from train import bench
from train.benches import inference, inference_picture
from train.vectors import length_batches

BLOCKS = dict(num_layers=2, embed_dim=16, num_heads=2, mlp_dim=32)
CELLS = dict(lstm_dim=8, projection_dim=4, filters=((1, 4), (2, 8)))
SMALL = {
  'words': inference.Reader('table'),
  'bilstm': inference.Bilstm('BiLSTM'),
  'elmo': inference.Elmo('ELMo', **CELLS),
  'gpt': inference.Gpt('GPT', **BLOCKS),
  'bert': inference.Bert('BERT', **BLOCKS),
}
CASES = [(kind, use) for kind, system in SMALL.items() for use in system.uses]


@pytest.fixture(autouse=True)
def _few_words(monkeypatch):
  monkeypatch.setattr(inference, 'NUM_WORDS', 50)
  monkeypatch.setattr(inference, 'WORD_DIM', 6)
  monkeypatch.setattr(inference.Gpt, 'num_ids', 60)
  monkeypatch.setattr(inference.Bert, 'num_ids', 60)


@pytest.mark.parametrize(('kind', 'use'), CASES)
def test_every_system_reads_texts(kind, use):
  system = SMALL[kind]
  module = system.module(use, 'float32')
  draw, read = (
    jax.jit(functools.partial(function, use, module))
    for function in (system.draw, system.read)
  )
  variables = draw(jax.random.key(0))
  texts = system.texts(3, 5)
  found = np.asarray(read(variables, texts))
  width = {'words': 6, 'elmo': 8}.get(kind, 16)
  shapes = {'vectors': (3, width), 'classes': (3, 2), 'tags': (3, 5, 9)}
  assert found.shape == shapes[use] and np.isfinite(found).all()
  alone = [array[1:2] for array in texts]
  one = read(variables, alone)
  np.testing.assert_allclose(one, found[1:2], atol=1e-5)


def test_the_figures_and_their_picture(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr(inference, 'SYSTEMS', (SMALL['words'], SMALL['bert']))
  monkeypatch.setattr(inference, 'LENGTHS', (2, 4))
  monkeypatch.setattr(length_batches, 'CPU_BATCH_TOKENS', 8)
  monkeypatch.setattr(inference, 'REPEATS', 1)
  found = inference.bench(None, None)
  assert len(found) == (1 + 3) * 2 * 4
  assert found['BERT | tags | 2 | texts a batch'] == 4
  assert all(figure > 0 for figure in found.values())
  assert 'table, vectors of 4: ' in capsys.readouterr().err
  inference_picture.write(found, tmp_path / 'a.png')
  assert (tmp_path / 'a.png').stat().st_size > 20_000
  found = inference.bench(None, 'classes,tags')
  assert {name.split(' | ')[1] for name in found} == {'classes', 'tags'}


def test_what_cannot_be_timed_or_written_is_refused(tmp_path):
  with pytest.raises(ValueError, match="'words' is none of vectors, classes"):
    inference.bench(None, 'tags,words')
  missing = str(tmp_path / 'none/figures.json')
  with pytest.raises(FileNotFoundError, match='no such folder to write to'):
    bench._run('bench', ['inference'], {}, {}, missing)


@pytest.mark.slow
@pytest.mark.parametrize('again', [False, True])
def test_the_clock_of_a_tpu(again):
  """Twice, as nothing that was compiled for a TPU is read from a cache."""
  del again
  code = """
from train.slices import without_hardware
without_hardware.prepare()
from train.benches import inference
from train.slices import topology
from train.vectors import length_batches
length_batches.ACCELERATOR_BATCH_TOKENS = 1024
sizes = dict(num_layers=2, embed_dim=128, num_heads=2, mlp_dim=512)
system = inference.Bert('BERT', **sizes)
for row in inference.estimate(system, 'vectors', (16, 512), 'v5litepod-1'):
  print(row.batch, row.one_ms, row.texts_per_second)
chip = topology.find('v5litepod-1').devices[0]
for batch, length in ((64, 16), (8, 128), (1, 16)):
  found = inference.compiled(system, 'vectors', batch, length, 'bfloat16', chip)
  print('attention_forward' in found.as_text())
"""
  done = subprocess.run(
    [sys.executable, '-W', 'error::UserWarning', '-c', code],
    capture_output=True,
    text=True,
    check=False,
  )
  assert not done.returncode, done.stderr
  *figures, many, long, alone = done.stdout.splitlines()
  assert (many, long, alone) == ('True', 'True', 'False')  # by the kernel
  short, long = (map(float, line.split()) for line in figures)
  (rows, one, rate), (few, longer, slower) = short, long
  assert (rows, few) == (64, 2)
  assert 0 < one < longer < 1
  assert rate > slower > 1000
