"""Models of transformers that several files of this folder read."""

import published_cases
import pytest

from models.pretrained import hugging_face


@pytest.fixture(scope='session')
def transformers(torch):
  del torch
  return pytest.importorskip('transformers')


@pytest.fixture(scope='module')
def released(transformers, tmp_path_factory):
  """(folder, class, parameters) of a BERT with pre-training heads."""
  folder = tmp_path_factory.mktemp('released')
  model, params = published_cases.make_bert('BertForPreTraining')
  hugging_face.write_folder(folder, model, params)
  theirs = published_cases.open_theirs(
    transformers, 'BertForPreTraining', folder
  )
  return folder, theirs, params
