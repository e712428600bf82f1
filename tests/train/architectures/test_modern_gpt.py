"""GPT in its modern form: trained, decoded, fine-tuned; no class exports it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_tasks
from gpt_store import small_gpt_config, small_stores

from configs import variants
from models import decoding, gpt
from train.engine import state
from train.exports import folders
from train.params import opened
from train.run import settings, workdirs

CHANGES = variants.MODERN_GPT | {
  'model.query_key_norm': True,
  'optim.learning_rate': 1e-2,
}


@pytest.fixture(scope='module')
def trained(one_device, tmp_path_factory):
  folder = tmp_path_factory.mktemp('modern')
  config = small_gpt_config('gpt', small_stores(folder), **CHANGES)
  return folder / 'run', runs.train(config, folder / 'run')


def test_a_run_learns_and_opens_again(trained):
  workdir, results = trained
  found = opened.open_weights(workdir)
  found.check_complete()
  assert found.model.norm == 'pre' and not found.model.biases
  assert 'embeddings/positions' not in found.shapes
  assert not any(
    path.endswith('bias') and not path.startswith('embeddings')
    for path in found.shapes
  )
  figures = results['metrics']
  assert figures['eval/perplexity'] < figures['eval/unigram_perplexity'] * 2


def test_held_out_scores_are_those_of_rows_that_are_not_packed(
  trained, tmp_path
):
  """The windows of a document are the same, whatever shares their row."""
  workdir, results = trained
  other = settings.with_overrides(
    workdirs.read_config(workdir),
    {
      'data.packed': None,
      'init.weights': str(workdir),
      'optim.learning_rate': 0.0,
      'train.phases': ((1, 32, 16, 'continue'),),
      'eval.max_windows': 100_000,
    },
  )
  packed = settings.with_overrides(other, {'data.packed': 'documents'})
  apart, together = (
    runs.train(config, tmp_path / str(i))['metrics']
    for i, config in enumerate((other, packed))
  )
  for name in ('eval/lm_loss', 'eval/lm_accuracy'):
    assert apart[name] == pytest.approx(together[name], rel=1e-5)


def test_decoding_is_the_full_forward(trained):
  """Of prompts of different lengths, which have padding behind them."""
  found = opened.open_weights(trained[0])
  model, params = found.model, found.load()
  lengths = np.array([9, 3, 1, 7])
  rng = np.random.default_rng(0)
  tokens = rng.integers(0, model.vocab_size, (4, 9))
  (made,) = decoding.generate(
    model,
    params,
    tokens,
    lengths,
    max_new_tokens=8,
    rngs=jax.random.split(jax.random.key(0), 4),
  )

  @jax.jit
  def likeliest(tokens, mask):
    places = jnp.broadcast_to(jnp.arange(17), tokens.shape)
    outputs = model.apply({'params': params}, tokens, mask, places, train=False)
    return outputs['lm_logits'][..., : model.vocab_size].argmax(axis=-1)

  for row, length in enumerate(lengths):
    text = np.zeros((1, 17), np.int32)
    text[0, :length] = tokens[row, :length]
    for i in range(length, length + 8):
      text[0, i] = likeliest(text, np.arange(17)[None] < i)[0, i - 1]
    np.testing.assert_array_equal(made[row], text[0, length : length + 8])


def test_a_task_is_learnt_from_it_and_opened_again(trained, tmp_path):
  task = small_tasks.write_sentences(tmp_path / 'task')
  config = small_tasks.small_config(
    task,
    trained[0],
    **{'train.num_epochs': 1.0, 'task.lm_weight': 0.3},
  )
  results = runs.train(config, tmp_path / 'fine')
  assert results['config']['model.norm'] == 'pre'
  again = opened.open_weights(tmp_path / 'fine')
  assert again.model.pre_norm and again.model.gated
  assert again.model.positions == 'rotary'
  assert state.digest(again.load()) == results['state_sha256']


def test_no_class_of_hugging_face_computes_it(trained, tmp_path):
  with pytest.raises(
    ValueError,
    match='no such model:\n  biases is False, .*\n  gated is True, .*\n  pos',
  ):
    folders.export(trained[0], tmp_path / 'out')
  assert not (tmp_path / 'out').exists()


def test_only_bert_has_windows():
  """Slots of a cache are no positions: padding lies between them."""
  model = settings.load_config('gpt_tiny:modern').model
  assert model.norm == 'pre' and model.mlp_dim == 320
  assert not {'window', 'global_every', 'local_rotary_base'} & set(model)
  assert gpt.Gpt.window == 0
  assert 'norm' not in settings.load_config('gpt2').model


@pytest.mark.parametrize(
  ('arg', 'said'),
  [
    ('gpt-tiny,gpt', 'gpt-tiny and gpt: expected one of them alone'),
    ('old', "no size 'old': expected one of gpt-tiny, .*modern"),
  ],
)
def test_other_words_are_refused(arg, said):
  with pytest.raises(ValueError, match=said):
    settings.load_config(f'gpt_tiny:{arg}')
