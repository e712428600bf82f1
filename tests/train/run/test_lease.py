"""The lock of a run's folder on Cloud Storage."""

import datetime
import json
import threading

import pytest

from train.benches.loopback import Fault
from train.run import lease


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(lease, 'RENEW_SECONDS', 0.1)
  monkeypatch.setattr(lease, '_LOOK_SECONDS', 0.05)


@pytest.fixture
def other_machine(monkeypatch):
  """Looks as if each lease were of another machine."""
  names = iter(range(100))
  monkeypatch.setattr(lease, '_machine', lambda: [f'machine {next(names)}'])


def lock_of(loopback, gs):
  return loopback.storage.buckets[gs.removeprefix('gs://')].get('run/.lock')


def put(loopback, gs, *, age=0.0, **holder):
  """Puts another's lock there, written so many seconds ago."""
  bucket = gs.removeprefix('gs://')
  content = {'host': 'far', 'process': 7, 'since': 'noon', 'token': 'theirs'}
  data = json.dumps(content | holder).encode()
  loopback.storage.put(bucket, 'run/.lock', data)
  found = loopback.storage.buckets[bucket]['run/.lock']
  then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=age)
  loopback.storage.buckets[bucket]['run/.lock'] = found._replace(
    updated=then.isoformat(timespec='milliseconds').replace('+00:00', 'Z')
  )


def test_it_names_its_holder_is_renewed_and_goes(gs, loopback):
  with lease.Lease(f'{gs}/run') as held:
    first = lock_of(loopback, gs)
    assert {'host', 'process', 'since'} <= json.loads(first.data).keys()
    assert eventually(lambda: lock_of(loopback, gs) != first)
    held.check_held()
  assert lock_of(loopback, gs) is None


def test_a_second_process_is_refused(gs, loopback, other_machine, capsys):
  with lease.Lease(f'{gs}/run') as held:
    with pytest.raises(
      ValueError, match=r'process \d+ on .*, since .*, trains'
    ):
      lease.Lease(f'{gs}/run').__enter__()
    held.check_held()
  assert 'is locked by process' in capsys.readouterr().err
  assert lock_of(loopback, gs) is None


def test_a_lock_that_nobody_renews_expires(gs, loopback, monkeypatch, capsys):
  monkeypatch.setattr(lease, 'EXPIRY_SECONDS', 3.0)
  put(loopback, gs, age=1.0)
  with lease.Lease(f'{gs}/run') as held:
    assert b'theirs' not in lock_of(loopback, gs).data
    held.check_held()
  said = ' '.join(capsys.readouterr().err.split())
  assert 'is locked by process 7 on far, since noon' in said
  put(loopback, gs, age=4.0)  # at once, and without a word
  with lease.Lease(f'{gs}/run'):
    pass
  assert not capsys.readouterr().err


def test_a_dead_process_of_this_machine_holds_nothing(gs, loopback, capsys):
  ours = {'machine': lease._machine(), 'began': '7'}
  for process in (2**22 + 1, 1):  # there is none; another has its number
    put(loopback, gs, process=process, **ours)
    with lease.Lease(f'{gs}/run') as held:
      held.check_held()
  assert not capsys.readouterr().err


def test_a_lost_answer_takes_nobodys_lock(gs, loopback):
  loopback.faults += [Fault('POST .*upload', lost=503, times=1)]
  with lease.Lease(f'{gs}/run') as held:
    first = lock_of(loopback, gs)
    loopback.faults += [Fault('POST .*upload', lost=503, times=1)]
    assert eventually(lambda: lock_of(loopback, gs) != first)
    assert eventually(lambda: loopback.faults[-1].left == 0)
    held.check_held()
  assert lock_of(loopback, gs) is None


def test_who_was_taken_over_is_told_and_leaves_the_lock(gs, loopback):
  with lease.Lease(f'{gs}/run') as held:
    put(loopback, gs)

    def is_told():
      try:
        held.check_held()
      except OSError as error:
        return 'taken over by process 7 on far, since noon' in str(error)

    assert eventually(is_told)
  assert b'theirs' in lock_of(loopback, gs).data


def test_who_slept_asks_before_it_goes_on(gs, loopback, monkeypatch):
  with lease.Lease(f'{gs}/run') as held:
    held._ended.set()  # its thread sleeps, as the process would
    held._thread.join()
    held.check_held()
    put(loopback, gs)
    held.check_held(sure=True)  # it was renewed a moment ago
    monkeypatch.setattr(lease, 'EXPIRY_SECONDS', -1.0)
    held.check_held()
    with pytest.raises(OSError, match='taken over by process 7 on far'):
      held.check_held(sure=True)


def test_a_lock_that_was_deleted_is_written_again(gs, loopback):
  with lease.Lease(f'{gs}/run') as held:
    loopback.storage.buckets[gs.removeprefix('gs://')].clear()
    assert eventually(lambda: lock_of(loopback, gs))
    held.check_held()


def test_storage_that_is_away_is_waited_for(gs, loopback):
  with lease.Lease(f'{gs}/run') as held:
    loopback.faults += [Fault('.', status=404, times=10**9)]
    assert eventually(lambda: loopback.faults[0].left < 10**9 - 3)
    loopback.faults.clear()
    count = len(loopback.requests)
    assert eventually(lambda: len(loopback.requests) > count + 2)
    held.check_held()
  assert lock_of(loopback, gs) is None


def eventually(condition):
  """Returns whether a condition comes true."""
  pause = threading.Event()
  return any(condition() or pause.wait(0.05) for _ in range(400))
