"""Rates and steps, against the released formulas; and which runs may go on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import transfer
from data.tasks import registry
from train.run import settings
from train.run.training_phases import Phase
from train.transfer import assemble, task_data, task_plan


def rates_of(arg, steps):
  config = settings.load_config(f'transfer:{arg}')
  schedule = assemble.make_schedule(config, Phase(steps, 128, 32, 'continue'))
  return np.asarray(jax.vmap(schedule)(jnp.arange(steps)))


@pytest.mark.parametrize('steps', [7, 345, 5000])
def test_gpts_warm_up_multiplies_the_decay(steps):
  # openai/finetune-transformer-lm, opt.py: x of the updates are done.
  x = np.arange(steps) / steps
  warming = np.minimum(x / 0.002, 1)
  expected = 6.25e-5 * warming * (1 - x)
  np.testing.assert_allclose(
    rates_of('task=mrpc,recipe=gpt', steps), expected, rtol=1e-5, atol=1e-12
  )


@pytest.mark.parametrize('steps', [7, 345, 5000])
def test_berts_warm_up_replaces_the_decay(steps):
  # google-research/bert, optimization.py and run_classifier.py.
  step = np.arange(steps)
  warmup = int(steps * 0.1)
  expected = 3e-5 * (1 - step / steps)
  expected[:warmup] = 3e-5 * step[:warmup] / max(warmup, 1)
  np.testing.assert_allclose(
    rates_of('task=mrpc,recipe=bert', steps), expected, rtol=1e-5, atol=1e-12
  )


@pytest.mark.parametrize(
  ('arg', 'examples', 'rows', 'steps', 'epoch'),
  [
    # google-research/bert, run_classifier.py: int(3668 / 32 * 3.0)
    ('task=mrpc', 3_668, 3_668, 343, 115),
    # and run_squad.py, of questions: int(87599 / 32 * 3.0) and so on
    ('task=squad1', 87_599, 88_641, 8_212, 2_738),
    ('task=squad2', 130_319, 131_944, 5_429, 2_715),
    ('task=triviaqa', 61_888, 400_000, 1_934, 1_934),
    # openai/finetune-transformer-lm, train.py: (1497 // 32) * 3
    ('task=story_cloze,recipe=gpt', 1_497, 1_497, 138, 46),
    ('task=mrpc,recipe=stable', 3_668, 3_668, 2_293, 115),
    ('task=squad1,recipe=stable', 87_599, 88_641, 8_311, 2_771),
    # Less than a batch is learnt from all the same.
    ('task=rte', 10, 10, 1, 1),
    ('task=rte,recipe=gpt', 31, 31, 1, 1),
    ('task=rte,recipe=stable', 10, 10, 7, 1),
  ],
)
def test_steps_are_those_of_the_releases(arg, examples, rows, steps, epoch):
  config = settings.load_config(f'transfer:{arg}')
  split = task_data.Split('train', range(examples), range(rows), None)
  assert assemble.count_steps(config, [split]) == (steps, epoch)
  config = settings.with_overrides(config, {'train.steps': 7})
  assert assemble.count_steps(config, [split]) == (7, min(7, epoch))


def test_each_recipe_keeps_the_model_that_its_source_does():
  kept = {
    recipe: settings.load_config(f'transfer:recipe={recipe}').train.select
    for recipe in transfer.RECIPES
  }
  best = dict.fromkeys(('stable', 'gpt', 'frozen'), 'best')
  assert kept == {'corrected': 'last', 'bert': 'last', **best}
  config = settings.load_config('transfer:task=mrpc')
  config.train.patience = 2
  with pytest.raises(ValueError, match=r"patience=2: .* train\.select='best'"):
    task_plan.check_settings(config)


def test_the_default_recipe_is_berts_with_bias_correction():
  for task in registry.TASKS:
    default, named, bert = (
      settings.flatten(settings.load_config(f'transfer:task={task}{recipe}'))
      for recipe in ('', ',recipe=corrected', ',recipe=bert')
    )
    assert default == named
    differing = {key for key in bert if default[key] != bert[key]}
    own = registry.TASKS[task].recipe.get('bert', {})
    rate = 'optim.learning_rate'
    assert differing == {'optim.name'} | ({rate} - own.keys()), task
    assert (default['optim.name'], bert['optim.name']) == ('adamw', 'bert_adam')
    # Of BERT's release, and of sets whose paper names another.
    assert bert[rate] == own.get(rate, 3e-5)


@pytest.mark.parametrize(
  ('arg', 'overrides', 'expected'),
  [
    ('task=mrpc', {}, 'corrected (adamw, rate 0.0001)'),
    ('task=squad1', {}, 'corrected (adamw, rate 5e-05)'),
    ('task=mrpc,recipe=bert', {}, 'bert (bert_adam, rate 3e-05)'),
    ('task=mrpc,recipe=stable', {}, 'stable (adamw, rate 2e-05)'),
    ('task=race,recipe=gpt', {}, 'gpt (gpt_adam, rate 6.25e-05)'),
    ('task=own,recipe=frozen', {}, 'frozen (adamw, rate 0.001)'),
    (
      'task=mrpc',
      {'optim.learning_rate': 2e-5, 'train.num_epochs': 5.0},
      'corrected (adamw, rate 2e-05), but optim.learning_rate=2e-05 for'
      ' 0.0001, train.num_epochs=5.0 for 3.0',
    ),
    ('task=sst5,model=bcn', {}, ''),
  ],
)
def test_a_configs_recipe_is_told_by_its_values(arg, overrides, expected):
  config = settings.load_config(f'transfer:{arg}')
  config = settings.with_overrides(config, overrides)
  assert task_plan.recipe_of(config) == expected


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    (
      {'own.kind': 'classificaton'},
      "own.kind='classificaton': expected",
    ),
    ({}, 'own.kind=None: expected one of classification, '),
    ({'own.kind': 'span', 'optim.beta2': 1.0}, 'optim.beta2=1.0: expected a'),
    ({'own.kind': 'span', 'init.num_layers': 0}, 'init.num_layers=0: expected'),
    ({'own.kind': 'span', 'train.plateau': -1}, 'train.plateau=-1: expected 0'),
    ({'own.kind': 'span', 'task.mix_l2': -1.0}, 'task.mix_l2=-1.0: expected 0'),
    *(
      ({'own.kind': 'span', key: 'x'}, f"{key}='x': expected one of")
      for key in ('model.norm', 'model.positions', 'model.gelu', 'model.dtype')
    ),
    (
      {'own.kind': 'span'},
      'folder of own.train and own.dev .*FOLDER.$',
    ),
  ],
)
def test_bad_values_of_a_task_are_named(overrides, message):
  config = settings.load_config('transfer:task=own')
  config = settings.with_overrides(config, overrides)
  with pytest.raises(ValueError, match=message):
    task_plan.check_settings(config)
    task_data.open_task(config)


@pytest.mark.parametrize(
  ('name', 'before', 'now'), [('bert', 0, 0), ('bert', 2, 0), ('gpt', 2, 2)]
)
def test_a_rotary_model_is_continued(name, before, now, tmp_path):
  # Older configs of BERT say 2. A GPT's has the key, too, and does not read it.
  old, planned = (
    settings.with_overrides(
      settings.load_config('transfer:task=sst2'),
      {
        'model.name': name,
        'model.positions': 'rotary',
        'model.num_token_types': types,
      },
    )
    for types in (before, now)
  )
  (tmp_path / 'config.json').write_text(old.to_json())
  task_plan.check_continuation(planned, tmp_path, planned)


def test_when_two_configs_are_the_same(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  old = {
    'data.source': 'glue',
    'init.weights': 'gs://bucket/w',
    'eval.global_batch': 8,
    'train.platform': 'cpu',
    'train.eval_every': 4,
  }
  same = old | {'data.source': str(tmp_path / 'glue'), 'eval.global_batch': 64}
  assert not task_plan.differing_keys(old, same | {'train.platform': 'tpu'})
  assert not task_plan.differing_keys(old, old | {'train.plateau': None})
  assert task_plan.differing_keys(old, old | {'train.plateau': 0})
  hub = {'init.weights': 'hf://org/bert'}
  assert task_plan.differing_keys(old, old | hub) == {
    'init.weights': ('gs://bucket/w', 'hf://org/bert')
  }
  # It decides which model is the best.
  assert task_plan.differing_keys(old, old | {'train.eval_every': 8}) == {
    'train.eval_every': (4, 8)
  }
  assert task_plan.differing_keys(old, old | {'data.source': '../glue'})


@pytest.mark.parametrize(
  ('found', 'main', 'told'),
  [
    ((0.7, 0.8), 'accuracy', 'The model is no better than the commonest label'),
    ((0.7, 0.81), 'f1', None),
    (
      (0.72, 0.79),
      'f1',
      'By mrpc/f1 the model is no better than the commonest',
    ),
    ((0.72, 0.79), 'accuracy', None),
    # A run of an earlier revision does not name its metric.
    ((0.72, 0.79), None, None),
  ],
)
def test_a_model_that_is_no_better_than_one_answer_is_told(
  found, main, told, tmp_path, capsys
):
  names = ('eval/mrpc/accuracy', 'eval/mrpc/f1')
  test = 'eval/mrpc/test/accuracy'  # which does not count
  results = {
    'metrics': dict(zip(names, found, strict=True)) | {test: 0.9},
    'constant': dict(zip(names, (0.7, 0.8), strict=True)) | {test: 0.65},
    **({'main_metric': f'eval/mrpc/{main}'} if main else {}),
    'intervals': {},
    'config': {},
    'best_step': 3,
    'steps': 4,
    'seconds': 5.0,
    'device': 'cpu',
  }
  task_plan.print_results(results, tmp_path / 'my run', of_several=False)
  printed, said = capsys.readouterr()
  assert f"python -m train.predict '{tmp_path}/my run' --input" in printed
  assert not said
  assert 'one answer for all: 0.8000' in printed
  assert 'one answer for all: 0.6500' in printed
  assert told in printed if told else 'commonest' not in printed
