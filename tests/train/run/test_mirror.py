"""Files that grow, on storage that cannot append."""

import pytest

from data import storage
from train.benches.loopback import Fault
from train.run import metrics, mirror


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


def rows(workdir):
  return [row[0] for row in metrics.read_metrics(workdir)]


def write(growing, *steps, kept=0):
  """Opens a writer of metrics after `kept` steps, and writes rows."""
  writer = metrics.MetricsWriter(growing.folder, step=kept)
  for step in steps:
    writer.write(step, {'loss': 1 / step})
  return writer


def test_a_local_workdir_is_its_own(tmp_path):
  with mirror.Mirror(tmp_path) as growing:
    assert growing.folder == tmp_path
    write(growing, 1).close()
    assert growing.tails() == {}
  assert rows(tmp_path) == [1]
  assert not (tmp_path / 'cache').exists()


def test_what_grows_is_copied_when_asked(gs, loopback, tmp_path):
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({})
    writer = write(growing, 1, 2)
    assert not [r for r in loopback.requests if r.startswith('POST')]
    growing.settle()
    assert rows(f'{gs}/run') == [1, 2]
    writer.write(3, {'loss': 0.1})
    begin, rest = growing.tails()[metrics.FILE]
    assert rest == '3,loss,0.1\n'
    loopback.requests.clear()
    growing.settle()
    assert growing.tails()[metrics.FILE][1] == ''
    growing.settle()  # nothing has changed
    writes = [r for r in loopback.requests if r.startswith('POST')]
    assert len(writes) == 2  # metrics and events
    writer.close()
  names = loopback.storage.buckets[gs.removeprefix('gs://')]
  assert any(name.startswith('run/tensorboard/events') for name in names)
  assert not list((tmp_path / 'cache').rglob('*.csv'))


@pytest.mark.parametrize('copied', [False, True])
def test_a_checkpoint_has_the_rows_that_the_copies_lack(gs, copied):
  first = mirror.Mirror(f'{gs}/run')
  first.__enter__()
  first.fetch({})
  writer = write(first, 1)
  first.settle()
  writer.write(2, {'loss': 0.5})
  tails = first.tails()
  if copied:
    writer.write(3, {'loss': 0.3})
    first.settle()
  writer.close()  # and the process is killed
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch(tails)
    assert rows(growing.folder) == ([1, 2, 3] if copied else [1, 2])
    write(growing, 4, kept=2).close()
  assert rows(f'{gs}/run') == [1, 2, 4]
  with mirror.Mirror(f'{gs}/run') as growing:  # the older checkpoint again
    growing.fetch(tails)
    assert rows(growing.folder) == [1, 2, 4]


def test_a_copy_that_has_become_shorter_is_told(gs, capsys):
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({metrics.FILE: (40, '3,loss,0.1\n')})
    assert not list(growing.folder.iterdir())
  said = capsys.readouterr().err
  assert f'{metrics.FILE} has 0 bytes, and had 40 at the checkpoint' in said


def test_late_copies_are_told_once_and_made_up_for(
  gs, loopback, monkeypatch, capsys
):
  monkeypatch.setattr(storage, 'PATIENCE', 0.1)
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({})
    writer = write(growing, 1)
    loopback.faults += [Fault('POST', status=503, times=10**9)]
    for _ in range(3):
      assert not growing.settle()
    loopback.faults.clear()
    writer.write(2, {'loss': 0.5})
    writer.close()
  said = capsys.readouterr().err
  assert said.count('will be: ') == 1
  assert 'is copied to' in said and said.count('again.') == 1
  assert rows(f'{gs}/run') == [1, 2]


def test_what_cannot_be_copied_at_the_end_stays_here(
  gs, loopback, monkeypatch, capsys
):
  monkeypatch.setattr(storage, 'PATIENCE', 0.1)
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({})
    write(growing, 1).close()
    loopback.faults += [Fault('POST', status=503, times=10**9)]
  said = ' '.join(capsys.readouterr().err.split())
  assert f'are in {growing.folder}, and not in {gs}/run' in said
  assert rows(growing.folder) == [1]


def test_events_of_a_killed_process_are_copied_by_the_next(gs, loopback):
  killed = mirror.Mirror(f'{gs}/run')
  killed.__enter__()
  killed.fetch({})
  write(killed, 1).close()
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({})
    assert rows(growing.folder) == []
  objects = loopback.storage.buckets[gs.removeprefix('gs://')]
  assert [name for name in objects if 'tfevents' in name] == [*objects]


def test_a_file_that_is_not_whole_is_not_copied(gs, loopback):
  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({})
    (growing.folder / '.metrics.csv.7.new').write_text('half')
    (growing.folder / 'metrics.csv').write_text('whole')
  objects = loopback.storage.buckets[gs.removeprefix('gs://')]
  assert [*objects] == ['run/metrics.csv']


def test_nothing_is_written_for_another(gs, loopback):
  def check():
    raise OSError('taken over')

  with mirror.Mirror(f'{gs}/run') as growing:
    growing.fetch({})
    write(growing, 1).close()
    growing.check = check
  assert not loopback.storage.buckets[gs.removeprefix('gs://')]
