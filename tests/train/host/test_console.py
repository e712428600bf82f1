"""Lines and tables for people, JSON for programs."""

import io
import json
import math
import pathlib
import subprocess
import sys

from data.steady_errors import SteadyErrors
from train.host import console


def test_figures_of_a_row():
  row = {
    'train/mlm_loss': 2.0,
    'train/lr': 1.0,
    'time/tokens_per_second': 1234.5,
    'time/mfu': math.nan,
  }
  assert console.figures(row) == 'loss 2.000  1,234 tokens/s'
  row |= {'train/nsp_loss': 0.5, 'time/mfu': 0.25}
  text = console.figures(row)
  assert text == 'loss mlm 2.000, nsp 0.500  1,234 tokens/s  MFU 25%'
  assert console.duration(3725.4) == '1:02:05'


def test_figures_are_a_table_or_json(capsys):
  figures = {'tokens': 12345, 'share': 0.123456789, 'all': [1, 2], 'no': None}
  console.print_figures(figures, 'Title', as_json=False)
  printed = capsys.readouterr()
  assert not printed.err
  assert printed.out.split('\n') == [
    '',
    'Title',
    '  tokens  12,345',
    '  share   0.123457',
    '  no      None',
    '',
  ]
  console.print_figures(figures | {'x': math.inf}, 'T', as_json=True)
  printed = capsys.readouterr()
  assert json.loads(printed.out) == figures | {'x': None}
  assert not printed.err


def test_a_last_line_stands_beside_no_json(capsys):
  console.conclude('all is in a.html')
  assert capsys.readouterr() == ('all is in a.html\n', '')
  console.conclude('all is in a.html', as_json=True)
  assert capsys.readouterr() == ('', 'all is in a.html\n')


def test_results_that_standard_output_does_not_take_end_nothing():
  program = (
    'from train.host import console\n'
    'with console.lossy_output(): console.show("result")\n'
    'console.show("another")'
  )
  for output, is_lost in (('/dev/full', True), ('/dev/null', False)):
    with open(output, 'w') as file:
      done = subprocess.run(
        [sys.executable, '-c', program],
        stdout=file,
        stderr=subprocess.PIPE,
        text=True,
        cwd=pathlib.Path(__file__).parents[3],
      )
    assert done.returncode == 0, done.stderr
    assert ('takes no results' in done.stderr) == is_lost


def test_progress_without_a_terminal(capsys):
  with console.ProgressBar(2, 4) as bar:
    bar.update(3, 'loss 1')
    assert not capsys.readouterr().err
    bar.update(4, 'loss 0.5')
  assert capsys.readouterr().err == 'step 4/4  loss 0.5  0:00:00 left\n'


def test_counted(capsys):
  assert list(console.counted(iter('abc'), 3, 'letters')) == ['a', 'b', 'c']
  said = capsys.readouterr().err
  assert said.startswith('step 3/3  ') and ' letters/s  0:00:00 left' in said


class Full(io.StringIO):
  """A disk that is full after the first line."""

  def write(self, text):
    if self.getvalue():
      raise OSError(28, 'No space left on device')
    return super().write(text)


def test_a_log_that_takes_no_more_ends_nothing(monkeypatch):
  for stream, kept in ((Full(), 'first\n'), (None, None)):
    monkeypatch.setattr(SteadyErrors, 'lost', 0)
    monkeypatch.setattr(sys, 'stderr', stream)
    with SteadyErrors() as steady:
      assert not steady.facts()
      console.say('first')
      print('second', file=sys.stderr)
      console.say('third')
      with console.ProgressBar(0, 2) as bar:
        bar.update(2)
      facts = steady.facts()['stderr']
    assert sys.stderr is stream
    assert facts['lost_writes'] > 1
    if kept:
      assert stream.getvalue() == kept
      assert 'No space left' in facts['problem']
    else:
      assert 'closed when the program began' in facts['problem']
