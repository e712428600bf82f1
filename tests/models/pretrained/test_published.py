"""Which folders are of which kind."""

import json

import pytest

from models.pretrained import published


def test_other_folders_are_told_what_was_looked_for(tmp_path):
  assert not published.is_published(tmp_path / 'nowhere')
  with pytest.raises(FileNotFoundError, match='nowhere is no folder'):
    published.open_folder(tmp_path / 'nowhere')
  (tmp_path / 'tf_model.h5').touch()
  assert not published.is_published(tmp_path)
  with pytest.raises(
    FileNotFoundError,
    match=r'looked for config.json with .*params_0.*; it holds tf_model.h5$',
  ):
    published.open_folder(tmp_path)
  config = tmp_path / 'config.json'
  config.write_text(json.dumps({'model': {'name': 'bert'}, 'train': {}}))
  assert not published.is_published(tmp_path)
  config.write_text(json.dumps({'model_type': 'bert'}))
  assert published.is_published(tmp_path)
  with pytest.raises(FileNotFoundError, match=r'no weights.*tf_model.h5$'):
    published.open_folder(tmp_path)
  config.write_text(json.dumps({'model_type': 'llama'}))
  opened = published.open_folder(tmp_path)
  assert (opened.name, opened.model) == ('llama', None)
  with pytest.raises(ValueError, match="model_type is 'llama', expected bert"):
    opened.check_problems()
