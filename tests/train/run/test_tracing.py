"""Profiles of some steps: what they hold, and what is refused."""

import jax
import pytest
import runs

from train.run import ledger, tracing


@pytest.mark.slow
@pytest.mark.usefixtures('one_device')
def test_a_profile_holds_the_steps_and_changes_nothing(
  finished, small_config, tmp_path
):
  workdir, plain = finished
  results = runs.train(small_config(train__profile=(3, 2)), tmp_path)
  assert results['state_sha256'] == plain['state_sha256']
  assert not (workdir / 'profile').exists()
  (path,) = (tmp_path / 'profile').rglob('*.xplane.pb')
  profile = jax.profiler.ProfileData.from_file(str(path))
  numbers = [
    dict(event.stats)['step_num']
    for plane in profile.planes
    for line in plane.lines
    for event in line.events
    if event.name == 'train'
  ]
  assert sorted(map(int, numbers)) == [3, 4]


def test_a_run_that_continues_beyond_the_profile_writes_none(tmp_path):
  done = list(
    tracing.steps(range(9, 12), (3, 2), tmp_path, lambda: None, ledger.Ledger())
  )
  assert done == [9, 10, 11]
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'profile', [(3,), (0, 2), (3, -1), (3, 2.0), ('3', 2), (11, 3), (True, 2)]
)
def test_other_steps_than_the_runs_are_refused(profile):
  with pytest.raises(ValueError, match=r'train.profile=\(.*12 steps'):
    tracing.check_profile(profile, 12)


def test_steps_inside_the_run_are_fine():
  for profile in ((), (1, 12), (12, 1)):
    tracing.check_profile(profile, 12)
