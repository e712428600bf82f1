"""A store that is built once."""

import shutil

import pytest
from text_stores import (
  TOKENIZER,
  build_quietly,
  make_documents,
  write_documents,
)


@pytest.fixture(scope='session')
def documents():
  return make_documents(200)


@pytest.fixture(scope='session')
def built(tmp_path_factory, documents):
  """A folder with text.txt and its store; tests copy what they change."""
  folder = tmp_path_factory.mktemp('built')
  text = write_documents(folder / 'text.txt', documents)
  build_quietly(text, TOKENIZER, folder / 'store', workers=1)
  return folder


@pytest.fixture
def store_copy(built, tmp_path):
  shutil.copytree(built / 'store', tmp_path / 'store')
  return tmp_path / 'store'
