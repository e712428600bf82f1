"""Figures of a run, as they are collected and printed."""

from train.run import reports


def test_the_last_and_the_best_of_each_metric():
  values = [
    (1, 'eval/loss', 3.0),
    (1, 'eval/accuracy', 0.5),
    (1, 'train/loss', 9.0),
    (2, 'eval/loss', 1.0),
    (2, 'eval/accuracy', 0.7),
    (3, 'eval/loss', 2.0),
    (3, 'eval/accuracy', 0.6),
  ]
  assert reports._held_out(values) == {
    'eval/loss': dict(last=2.0, last_step=3, best=1.0, best_step=2),
    'eval/accuracy': dict(last=0.6, last_step=3, best=0.7, best_step=2),
  }


def test_what_is_printed_of_restarts(capsys):
  shares = {'train': 0.8, 'restore': 0.2}
  report = {
    'workdir': 'runs/x',
    'finished': False,
    'steps_done': 10,
    'steps_in_all': 40,
    'held_out': {'eval/loss': dict(last=2, last_step=3, best=1, best_step=2)},
    'tokens_per_second': 1000.0,
    'mfu': 0.5,
    'seconds_left': 60.0,
    'last_written': 0.0,
    'time': {
      'seconds': 100.0,
      'training_share': 0.8,
      'bucket_seconds': {name: 100 * share for name, share in shares.items()},
      'bucket_shares': shares,
      'restarts': 2,
      'restarting_seconds': 20.0,
      'lost_seconds': 5.0,
      'down_seconds': 7.0,
    },
  }
  reports.print_report(report)
  text = capsys.readouterr().out
  for line in (
    '10 of 40 (25.0%); last sign of life',
    'about 0:01:00',
    '1,000 tokens/s, MFU 50.0% (medians)',
    '2, which cost 0:00:25: 0:00:20 to start again, 0:00:05 of steps done',
    'at step 3         best     1.0000 at step 2',
    '0:01:20   80.0%',
  ):
    assert line in text, line
  report['time']['restarts'] = 0
  reports.print_report(report | {'finished': True, 'mfu': None})
  text = capsys.readouterr().out
  assert 'all 10 done' in text and 'which cost' not in text
