"""Phases of a run: which one a step is in, and what is refused."""

import pytest

from train.run import settings, training_phases
from train.run.training_phases import Phase

PHASES = (Phase(3, 128, 16, 'continue'), Phase(2, 512, 4, 'restart'))


def test_steps_belong_to_phases_in_their_order():
  found = [training_phases.phase_at(PHASES, step) for step in range(5)]
  assert found == [PHASES[0]] * 3 + [PHASES[1]] * 2


def test_a_phase_longer_than_the_model_reads_is_refused():
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {
      'model.max_length': 512,
      'train.phases': (tuple(PHASES[0]), tuple(PHASES[1])),
    },
  )
  training_phases.check_lengths(config)
  short = settings.with_overrides(config, {'model.max_length': 256})
  with pytest.raises(ValueError, match=r'length 512 .* model\.max_length=256'):
    training_phases.check_lengths(short)


@pytest.mark.parametrize('unit', [3, None, ('word',)])
def test_a_unit_is_text(unit):
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {'train.phases': ((*PHASES[0][:4], unit),)},
  )
  with pytest.raises(
    ValueError, match='has the fifth field .* expected the na'
  ):
    training_phases.check_phases(config)


@pytest.mark.parametrize('unit', ['word', 'span', 'stored:folder'])
def test_a_unit_of_a_phase(unit):
  (phase,) = check_unit(unit)
  assert phase.unit == unit


@pytest.mark.parametrize('unit', ['letter', 'stored:', 'word:folder'])
def test_an_unknown_unit_is_refused(unit):
  with pytest.raises(ValueError, match=f"the unit '{unit}', expected one of"):
    check_unit(unit)


def check_unit(unit):
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {'train.phases': ((*PHASES[0][:4], unit),)},
  )
  return training_phases.check_phases(config)
