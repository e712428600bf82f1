"""GPT as OpenAI's program writes it, and files that mean harm."""

import json
import math
import shutil
import struct

import numpy as np
import published_cases
import pytest
from etils import epath
from hostile_files import archive, refused, state

from models import gpt
from models.pretrained import gpt_release, published


def test_gpt_of_openai(tmp_path):
  model, params = published_cases.make_gpt('gpt')
  published_cases.write_openai(
    tmp_path, published_cases.openai_arrays(model, params)
  )
  opened = published.open_folder(tmp_path)
  assert (opened.kind, opened.name) == ('OpenAI', 'gpt')
  assert opened.model == model
  published_cases.assert_same(opened.load(), params)
  np.save(tmp_path / 'params_9.npy', np.zeros(3, np.float32))
  with pytest.raises(
    ValueError, match='numbers in 10 files, params_0.npy to params_9.npy, exp'
  ):
    published.open_folder(tmp_path)
  (tmp_path / 'params_9.npy').write_bytes(b'\x93NUMPY')
  with pytest.raises(ValueError, match='params_9.npy is damaged'):
    published.open_folder(tmp_path)
  (tmp_path / 'params_9.npy').unlink()
  with pytest.raises(
    ValueError, match='9 files, params_0.npy to params_8.npy, .* has 10 files'
  ):
    published.open_folder(tmp_path)
  for i in (0, 2):
    (tmp_path / f'params_{i}.npy').unlink()
  with pytest.raises(
    FileNotFoundError, match='7 files .* expected 9 .*: it lacks params_0.npy, '
  ):
    published.open_folder(tmp_path)
  (tmp_path / 'params_shapes.json').write_text('[[17, 64], [133, 64], [64]]')
  with pytest.raises(ValueError, match='no list of the shapes'):
    published.open_folder(tmp_path)


@pytest.mark.parametrize('num_heads', [1, 2, 4])
def test_gpt_of_openai_in_another_size(num_heads, tmp_path):
  """A file tells its heads, and there are as many files as there are."""
  model, _ = published_cases.make_gpt('gpt')
  model = model.clone(embed_dim=48, mlp_dim=192, num_heads=num_heads)
  params = published_cases.draw(model)
  published_cases.write_openai(
    tmp_path, published_cases.openai_arrays(model, params), num_files=3
  )
  assert published.open_folder(tmp_path).problems == (
    'n_head is missing, expected a count',
    'no file tells the number of heads, and n_embd is 48, no multiple of 64,'
    ' the width of a head as released: write {"n_head": N} in hparams.json',
  )
  file = tmp_path / 'hparams.json'
  file.write_text(json.dumps({'n_head': num_heads}))
  opened = published.open_folder(tmp_path)
  assert (opened.kind, opened.model) == ('OpenAI', model)
  assert 'num_heads' not in opened.notes
  published_cases.assert_same(opened.load(), params)
  file.write_text(json.dumps({'n_head': 5, 'n_embd': 48, 'n_ctx': 18}))
  assert published.open_folder(tmp_path).problems == (
    'n_embd is 48, expected a multiple of n_head (5)',
    'n_ctx is 18 in hparams.json, 17 by params_shapes.json',
  )


def test_heads_of_openai_are_as_wide_as_released(tmp_path):
  """Unless a file tells their number."""
  model = published_cases.make_gpt('gpt')[0].clone(embed_dim=128, mlp_dim=512)
  published_cases.write_openai(
    tmp_path, published_cases.openai_arrays(model, published_cases.draw(model))
  )
  opened = published.open_folder(tmp_path)
  assert opened.model == model.clone(num_heads=2)
  assert opened.notes['num_heads'].startswith('read as n_embd / 64')
  (tmp_path / 'hparams.json').write_text('{"n_head": 1}')
  assert published.open_folder(tmp_path).model == model


def test_the_published_shapes_are_a_gpt(sesame_data, tmp_path):
  shutil.copy(sesame_data / 'fixtures/vocab/gpt/params_shapes.json', tmp_path)
  shapes = json.loads((tmp_path / 'params_shapes.json').read_text())
  total = sum(math.prod(shape) for shape in shapes)
  for i in range(10):  # zeros that take no space on the disk
    size = total // 10 + (i < total % 10)
    np.lib.format.open_memmap(
      tmp_path / f'params_{i}.npy', 'w+', np.float32, shape=(size,)
    )
  opened = published.open_folder(tmp_path)
  opened.check_problems()
  assert opened.model == gpt.Gpt(
    vocab_size=40478, num_layers=12, embed_dim=768, num_heads=12, mlp_dim=3072
  )
  assert total == 116_534_784  # as Hugging Face counts openai-gpt


def npy(header):
  text = header.encode() + b'\n'
  return b'\x93NUMPY\1\0' + struct.pack('<H', len(text)) + text + bytes(80)


@pytest.mark.parametrize(
  'content',
  [
    npy('(' * 9000),
    npy('-' * 9000 + '1'),
    npy('{"descr": "|O", "fortran_order": False, "shape": (2,)}'),
    npy('{"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}'),
    npy(
      '{"descr": "<f4", "fortran_order": False, "shape": (9' + '0' * 15 + ',)}'
    ),
    npy('{"descr": "<f4", "fortran_order": False, "shape": (-2,)}'),
    npy('{"descr": "<i4", "fortran_order": False, "shape": (2,)}'),
    archive(state()),
  ],
  ids=[
    'brackets',
    'signs',
    'objects',
    'sum',
    'huge',
    'negative',
    'integers',
    'zip',
  ],
)
def test_hostile_npy(content, tmp_path):
  for i in range(10):
    np.save(tmp_path / f'params_{i}.npy', np.zeros(2, np.float32))
  file = tmp_path / 'params_3.npy'
  file.write_bytes(content)
  refused(
    lambda file: gpt_release.entries(file.parent, {'x': (20,)}),
    file,
    'params_3.npy (is damaged or no NumPy file|holds int32, expected)',
  )


def test_shapes_that_no_array_has(tmp_path):
  file = tmp_path / 'params_shapes.json'
  for shape in ([-64], [0], [10**400], [True]):
    file.write_text(json.dumps([[17, 64], [133, 64], *[shape] * 12]))
    with pytest.raises(ValueError, match='params_shapes.json is no list of'):
      gpt_release.open_folder(epath.Path(tmp_path))
