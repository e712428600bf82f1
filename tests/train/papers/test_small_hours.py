"""Guesses of the seconds of runs, beside those that were measured."""

import pytest

from configs import ablation
from configs.tables import small, small_bert_sizes
from train.papers import small_hours
from train.run import settings


def tune(task, config=None, **overrides):
  name = f'transfer:task={task},recipe=corrected'
  recipe = small.SQUAD if task == 'squad1' else small.RECIPE
  return small_hours.of_tuning(
    settings.with_overrides(settings.load_config(name), recipe | overrides),
    config or ablation.get_config(),
    8_000,
  ).seconds


@pytest.mark.parametrize(
  ('arg', 'seconds'), [('gpt', 0.28), ('lstm', 0.22), ('bert,no_nsp', 0.16)]
)
def test_a_pre_training_takes_about_the_measured_seconds(arg, seconds):
  """Those of a step in results/README.md, for 8,000 steps."""
  job = small_hours.of_pretraining(ablation.get_config(arg))
  assert 2 / 3 < job.seconds / (8_000 * seconds) < 3 / 2


def test_a_larger_or_longer_run_takes_its_own_time():
  small_one = ablation.get_config('bert')
  large = settings.with_overrides(
    small_one, small_bert_sizes.SIZES['L4 H256'] | {'train.steps': 16_000}
  )
  first, second = map(small_hours.of_pretraining, (small_one, large))
  # 8 times the layers' parameters, twice those of the softmax.
  layers, softmax = 2 * 128 * (4 * 128 + 3 * 320), 0.15 * 8_000 * 128
  ratio = 2 * (8 * layers + 2 * softmax) / (layers + softmax)
  ours, theirs = (job.seconds - small_hours.START for job in (first, second))
  assert theirs / ours == pytest.approx(ratio, rel=0.01)
  for count in (
    small_hours.of_perplexity,
    lambda c: small_hours.of_pairs(c, 9),
  ):
    assert count(large).seconds > count(small_one).seconds
  assert tune('sst2', large) > tune('sst2')


def test_fine_tunings_take_the_time_of_their_task():
  """SQuAD's examples are longer, and are read four times, not three."""
  start = small_hours.START
  ratio = (tune('squad1') - start) / (tune('sst2') - start)
  assert ratio == pytest.approx(190 / 12 * 4 / 3)
  # Of 5,749 examples of STS-B three times, a BERT of 2 x 128 took 22 to 61 s
  # (results/tables/sesame_methods).
  assert 22 < tune('stsb') < 80
  gpt, auxiliary = ablation.get_config('gpt'), {'task.lm_weight': 0.5}
  assert 1.5 * tune('stsb', gpt) < tune('stsb', gpt, **auxiliary)
  frozen = {'task.frozen': True, 'task.bilstm_layers': 2} | small.BILSTM
  assert tune('sst2', **frozen) != tune('sst2')


def test_finished_runs_correct_guesses_of_their_kind_first():
  Duration = small_hours.Duration
  missing = [Duration('a', 10.0), Duration('b', 10.0)]
  assert small_hours.add_up(missing, []) == 20
  finished = [
    Duration('a', 10.0, 5.0),
    Duration('a', 30.0, 15.0),
    Duration('c', 10.0, 30.0),
  ]
  # b by all: 50 s in place of 50.
  assert small_hours.add_up(missing, finished) == 5 + 10
