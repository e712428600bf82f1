import jax
import numpy as np
import pytest

from configs import variants
from data.examples import transforms
from train.benches import programs

SMALL = {
  'model.num_layers': 1,
  'model.embed_dim': 8,
  'model.num_heads': 1,
  'model.mlp_dim': 8,
  'model.dtype': 'float32',
  'model.scan_layers': False,
}


@pytest.mark.slow
def test_a_step_reads_a_full_batch_again_and_again():
  step, state, batch, flops = programs.compiled_step(
    'gpt2', 2, 16, SMALL | {'data.tokenizer': 'train:bytebpe:500'}
  )
  assert flops > 0
  assert (batch['lengths'] == 17).all()
  for _ in range(2):
    state, _ = step(state, batch)
  assert int(state.step) == 2


@pytest.mark.slow
def test_a_step_with_units_reads_marks():
  job = programs.plan_step(
    'bert_tiny', 2, 16, SMALL | {'objective.unit': 'stored'}
  )
  text = programs.random_text(job)
  assert (text['window'] >= transforms.UNIT_START).mean() == 0.5
  assert (text['lengths'] == 18).all()
  step, state, batch, flops = programs.compile_step(job, text)
  state, report = step(state, batch)
  assert flops > 0 and np.isfinite(report['loss'])


def test_a_recipe_has_the_batch_of_its_config(monkeypatch):
  asked = []
  monkeypatch.setattr(
    programs, 'compiled_step', lambda *a: asked.append(a) or ()
  )
  monkeypatch.setattr(programs, '_training', lambda *a: a)
  programs.recipe_step('gpt_mini:modern')
  assert asked == [('gpt_mini:modern', 16, 256, {})]


@pytest.mark.slow
def test_a_recipe_trains():
  run, flops = programs.recipe_step('bert_tiny:modern')
  run()
  assert flops > 0


def test_a_text_has_a_vector(small_bert):
  run, _ = programs.embedding(
    weights=str(small_bert), sentences=['the', 'of the'], accelerator=False
  )
  assert [each.shape[-1] for each in run()] == [32, 32]


def test_decoding_writes_every_token(monkeypatch):
  sizes = dict(num_layers=1, embed_dim=8, num_heads=1, mlp_dim=8)
  monkeypatch.setitem(variants.GPT2, 'tiny', sizes)
  written = []
  generate = programs.greedy.generate

  def record(*arguments, **options):
    for tokens in generate(*arguments, **options):
      written.append(np.asarray(tokens))
      yield tokens

  monkeypatch.setattr(programs.greedy, 'generate', record)
  run, _ = programs.decoding('tiny', batch=2, new_tokens=3, accelerator=False)
  run()
  assert sum(tokens.shape[-1] for tokens in written) >= 3


def test_products_are_as_many_as_their_flops(monkeypatch):
  called = []

  def counted(a, b):
    called.append((a.shape, b.shape))
    return a

  monkeypatch.setattr(programs.jnp, 'matmul', counted)
  with jax.disable_jit():  # called each time
    run, flops = programs.products()
    run()
  assert called == [((1024, 768), (768, 3072))] * 20
  assert flops == 20 * 2 * 1024 * 768 * 3072
