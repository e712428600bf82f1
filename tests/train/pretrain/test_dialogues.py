"""Pre-training on dialogues beside other text."""

import numpy as np
import pytest
import runs
from dialogue_files import make_dialogues, write_dialogues

from train.engine import sharding
from train.params import opened
from train.pretrain import job
from train.vectors.trained_model import TrainedModel

pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def config(small_config, small_store, tmp_path_factory):
  """Returns a function (overrides) -> config of dialogues and other text."""
  folder = tmp_path_factory.mktemp('talks')
  file = write_dialogues(folder / 'talk.txt', make_dialogues(80))
  text = small_config().data.source

  def make(**overrides):
    overrides = {'train__objective': 'dialogue'} | overrides
    return small_config(
      data__source=f'talk=dialogue:{file},text={text}',
      data__tokenizer=str(small_store),
      data__folder=str(folder / 'store'),
      data__held_out=0.1,
      data__language_exponent=0.0,
      **overrides,
    )

  return make


@pytest.mark.slow
def test_dialogues_are_trained_beside_text(
  config, small_config, tmp_path, capsys
):
  results = runs.train(config(train__steps=4), tmp_path / 'run')
  metrics = results['metrics']
  for name in ('talk', 'text'):
    assert 0 < metrics[f'eval/languages/{name}/mlm_loss'] < 10
    assert 0 <= metrics[f'eval/languages/{name}/nsp_accuracy'] <= 1
  assert 'talk' in capsys.readouterr().err
  assert opened.open_weights(tmp_path / 'run').model.num_token_types == 4
  with pytest.raises(ValueError, match="'bert': the text of .* has dialogues"):
    job.make(config(train__objective='bert'), tmp_path / 'other')
  with pytest.raises(ValueError, match='has no dialogues. Objective and data'):
    job.make(small_config(train__objective='dialogue'), tmp_path / 'other')


def test_weights_without_the_roles_draw_them(
  config, finished, tmp_path, capsys
):
  weights = str(finished[0])
  with pytest.raises(
    ValueError, match='num_token_types is 2 there, 4 in.*new_r'
  ):
    job.make(config(init__weights=weights), tmp_path / 'run')
  capsys.readouterr()
  made = job.make(
    config(init__weights=weights, init__new_rows=True), tmp_path / 'run'
  )
  with sharding.scope(made.mesh, made.config.mesh.rules):
    created = made.create().params
  assert 'new: token types 2 to 3' in capsys.readouterr().err
  found, stored = (
    np.asarray(params['embeddings']['token_types'])
    for params in (created, TrainedModel(weights).params)
  )
  np.testing.assert_array_equal(found[:2], stored)
  assert found.shape[0] == 4 and found[2:].any(axis=-1).all()
