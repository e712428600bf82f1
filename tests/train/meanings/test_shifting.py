"""Shifted texts against transformers, given the position ids."""

import json

import numpy as np
import pytest
import transformers
from small_gpt import small_trained

from train import similarity
from train.meanings import shifting
from train.vectors.trained_model import TrainedModel

TEXTS = ['the value of a class', '', 'it returns a list of all names']
SHIFTS = (0, 3, 40)


def cosines(one, other):
  products = (one * other).sum(-1)
  return (
    products / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)
  )


@pytest.fixture
def file(tmp_path):
  (tmp_path / 'text').write_text('\n'.join(TEXTS) + '\n')
  return tmp_path / 'text'


def test_bert(small_bert, torch, file):
  found = TrainedModel(small_bert)
  model = transformers.BertModel.from_pretrained(small_bert).eval()
  expected = {shift: [] for shift in SHIFTS}
  for text in TEXTS:
    (ids,) = found.encode([text])
    ids = [found.tokenizer.cls_id, *ids, found.tokenizer.sep_id]
    layers = {}
    for shift in SHIFTS:
      places = torch.arange(len(ids))[None] + shift
      with torch.no_grad():
        outputs = model(
          torch.tensor([ids]), position_ids=places, output_hidden_states=True
        ).hidden_states
      layers[shift] = np.concatenate([x.numpy() for x in outputs])[:, 1:-1]
      new = cosines(layers[0], layers[shift])
      far = np.linalg.norm(layers[shift] - layers[0], axis=-1)
      far /= np.linalg.norm(layers[0], axis=-1)
      expected[shift].append(np.stack([new, far]))
  figures = shifting.measure(found, file, SHIFTS)
  assert [each['shift'] for each in figures['shifts']] == list(SHIFTS)
  for each in figures['shifts']:
    near, far = np.concatenate(expected[each['shift']], axis=-1)
    assert near.shape == (3, figures['tokens'])
    for name, values in (
      ('cosine', near.mean(1)),
      ('lowest_cosine', near.min(1)),
      ('distance', far.mean(1)),
    ):
      np.testing.assert_allclose(list(each[name].values()), values, atol=1e-5)
  same, _, moved = figures['shifts']
  assert set(same['distance'].values()) == {0}
  assert max(moved['cosine'].values()) < 0.999


def test_gpt2_moves_and_its_end_is_refused(file):
  found = small_trained()
  figures = shifting.measure(found, file, (0, 5))
  same, moved = figures['shifts']
  assert list(same['cosine'].values()) == pytest.approx([1] * 3, abs=1e-6)
  assert max(moved['cosine'].values()) < 1 - 1e-4
  (ids,) = found.encode([TEXTS[2]])
  most = 64 - len(ids)
  shifting.measure(found, file, (most,))
  with pytest.raises(
    ValueError, match='text, line 3 has .* expected 64 at mos'
  ):
    shifting.measure(found, file, (most + 1,))
  file.write_text('\n')
  with pytest.raises(ValueError, match='no line has a token'):
    shifting.measure(found, file, (0,))


def test_command(small_bert, small_elmo_folder, file, run_command):
  arguments = (file, '--shift', '0,7')
  figures = json.loads(
    run_command(similarity, small_bert, *arguments, '--json').out
  )
  assert [each['shift'] for each in figures['shifts']] == [0, 7]
  lines = run_command(similarity, small_bert, *arguments).out.splitlines()
  moved = figures['shifts'][1]['cosine'].values()
  shown = [cell.strip() for cell in lines[3].strip('|').split('|')]
  assert shown == ['7', *(f'{value:.4f}' for value in moved)]
  with pytest.raises(SystemExit, match='holds an elmo, .* and no positions'):
    run_command(similarity, small_elmo_folder, *arguments)
  with pytest.raises(SystemExit, match='--shift=a: expected numbers'):
    run_command(similarity, 'none', file, '--shift', 'a')
