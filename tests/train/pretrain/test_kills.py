"""Killed and started again equals uninterrupted, bit for bit."""

import random

import kill_storage
import kills
import pytest


@pytest.fixture(scope='module')
def harness(tmp_path_factory):
  """Small runs; their programs are compiled once."""
  return kills.Harness(tmp_path_factory.mktemp('kills'))


@pytest.mark.slow
@pytest.mark.parametrize('processes', [1, 2])
def test_killed_runs_end_like_the_uninterrupted_one(harness, processes, seed):
  """`python tests/helpers/kills.py` draws many more."""
  rng = random.Random(f'{seed} {processes}')
  drawn = [
    kill._replace(processes=processes, victim=rng.randrange(processes))
    for kill in kills.draw(1, 1, rng)
  ]
  if processes == 2:  # they must agree in the middle of an evaluation
    drawn = [
      kill._replace(moment='evaluation') if kill.signal == 'SIGTERM' else kill
      for kill in drawn
    ]
  print(drawn)
  assert harness.run(drawn)
  assert len(harness.rows) >= 2


@pytest.mark.slow
def test_killed_runs_in_packed_rows_end_likewise(tmp_path, seed):
  """A modern BERT, whose share of masks falls, of two processes."""
  harness = kills.Harness(tmp_path, packed=True)
  rng = random.Random(seed)
  drawn = [
    kill._replace(processes=2, victim=rng.randrange(2), moment=moment)
    for kill, moment in zip(
      kills.draw(1, 1, rng), ('mid-epoch', 'evaluation'), strict=True
    )
  ]
  print(drawn)
  assert harness.run(drawn)
  assert len(harness.rows) == 2


@pytest.mark.slow
def test_killed_runs_on_a_bucket_end_like_the_local_one(harness, seed):
  """Requests fail, and a SIGKILL comes in the middle of a save."""
  rng = random.Random(seed)
  in_a_save = {'moment': 'save', 'delay': rng.uniform(0, 1)}
  drawn = [
    kill._replace(**in_a_save) if kill.signal == 'SIGKILL' else kill
    for kill in kills.draw(1, 1, rng)
  ]
  print(drawn)
  with kill_storage.serve(largest_share=0.1) as bucket:
    there = harness.on(bucket, rng)
    assert there.run(drawn)
  assert len(there.rows) == 2
  assert not there.traces
  assert bucket.requests > sum(bucket.made.values()) > 0
