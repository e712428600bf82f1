"""Reports of preflight, printed and in a table."""

import json
import pathlib

import pytest

from train.slices import printing

RESULTS = pathlib.Path(__file__).parents[3] / 'results'


@pytest.mark.parametrize('name', ['preflight', 'preflight_scaling'])
def test_a_committed_report_is_written_and_printed_again(name, tmp_path):
  committed = (RESULTS / f'{name}.json').read_text()
  path = tmp_path / 'table.json'
  path.write_text(committed)
  for key, report in json.loads(committed).items():
    printing.add_to_table(path, key.split()[0], report)
    printing.print_report(report, price=1.0)
  assert path.read_text() == committed
  markdown = (RESULTS / f'{name}.md').read_text()
  assert path.with_suffix('.md').read_text() == markdown


@pytest.fixture
def report():
  """Returns one phase of a committed report."""
  report = json.loads((RESULTS / 'preflight.json').read_text())
  report = report['bert_base v5e-16']
  return report | {'phases': report['phases'][:1], 'mfu': None}


def test_the_estimate_is_printed_by_kind_of_work(report, capsys, tmp_path):
  report['phases'][0]['estimate'] = {
    'cycles': 30_000_000,
    'seconds': 0.02,
    'mfu': 0.3,
    'links_seconds': 0.005,
    'by_kind': {'projections': 24_000_000, 'rest': 6_000_000},
    'bounded': ['Elmo._encode_once/while'],
    'left_out': {'gather': 3},
  }
  report |= {'hours': 2.5, 'chip_hours': 40.0}
  printing.print_report(report, price=2.0)
  printed = capsys.readouterr().out
  for text in (
    'not a measurement',
    'projections   80.0%     24.000 M cycles',
    '30.00 M cycles, 20.00 ms, an MFU of 30.0%',
    'links        5.00 ms at least',
    'waiting for prefetched memory, gather (3)',
    'Elmo._encode_once/while',
    "By the compiler's estimate, the links' time added: 2.5 hours",
    '40 chip-hours, 80 to pay, without evaluation, checkpoints and waiting',
  ):
    assert text in printed, printed
  printing.add_to_table(tmp_path / 'table.json', 'a/bert_base.py', report)
  row = (tmp_path / 'table.md').read_text().splitlines()[-1]
  assert row.endswith('| 30.00 | 20.00 | 30.0% | 2.5 (40) |')


def test_a_missing_estimate_is_no_zero(report, capsys, tmp_path):
  report['phases'][0]['estimate'] = {'missing': 'kernel k: no estimate'}
  report |= {'hours': None, 'chip_hours': None}
  printing.print_report(report, price=1.0)
  printed = capsys.readouterr().out
  assert 'missing  kernel k: no estimate' in printed
  assert 'Without an estimate the hours are not known' in printed
  printing.add_to_table(tmp_path / 'table.json', 'bert_base', report)
  row = (tmp_path / 'table.md').read_text().splitlines()[-1]
  assert row.endswith('|  |  |  | no estimate |')
