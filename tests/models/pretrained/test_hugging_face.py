"""Folders that are written."""

import json

import published_cases
import pytest

from models.pretrained import hugging_face


def test_folders_are_not_written_over(tmp_path):
  model, params = published_cases.make_bert('BertModel')
  (tmp_path / 'notes').touch()
  with pytest.raises(FileExistsError, match='is not empty: name a new folder'):
    hugging_face.write_folder(tmp_path, model, params)
  (tmp_path / 'notes').unlink()
  hugging_face.write_folder(tmp_path, model, params, {'pad_token_id': 7})
  names = {'config.json', 'model.safetensors'}
  assert {path.name for path in tmp_path.iterdir()} == names
  assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
  config = json.loads((tmp_path / 'config.json').read_text())
  assert config['pad_token_id'] == 7
  model, params = published_cases.make_bert('BertForPreTraining')
  del params['pooler'], params['nsp']
  params['span_classifier'] = params['mlm']
  with pytest.raises(ValueError, match=r'the heads mlm \+ span_class'):
    hugging_face.write_folder(tmp_path / 'new', model, params)
  assert not (tmp_path / 'new').exists()
