"""The picture of a table's arguments: its size, its panels, what they say."""

import struct

import pytest
from etils import epath
from matplotlib import collections

from configs.tables.base import Contrast
from train.host import pictures
from train.papers import contrast_figure, contrasts, table_rows

WITH_ARGUMENTS = [
  name
  for name in table_rows.shipped_tables()
  if table_rows.load_table(name).contrasts
]


def make_differences(table):
  """Returns made-up differences of every argument and column."""
  return [
    contrasts.Difference(contrast, column.name, 2.0, place - 1.5, 0.3, 4)
    for contrast in table.contrasts
    for place, column in enumerate(table.columns)
  ]


@pytest.mark.parametrize('name', WITH_ARGUMENTS)
def test_a_picture_of_many_arguments_fits_a_page(name, tmp_path):
  differences = make_differences(table_rows.load_table(name))
  path = epath.Path(tmp_path) / 'x.png'
  contrast_figure.write(name, differences, path)
  _, height = struct.unpack('>II', path.read_bytes()[16:24])
  assert height <= 150 * contrast_figure.HEIGHT


def test_a_panel_says_the_claim_and_the_verdicts(tmp_path, monkeypatch):
  table = table_rows.load_table('small/bert_masking')
  (first, *others) = make_differences(table)
  # Without pre-trainings enough there is neither interval nor verdict.
  unsure = first._replace(error=None, freedom=0, published=None)
  kept = []
  monkeypatch.setattr(
    pictures, 'save', lambda figure, *_, **__: kept.append(figure)
  )
  contrast_figure.write('x', [unsure, *others], epath.Path(tmp_path))
  (figure,) = kept
  panels = [axes for axes in figure.axes if axes.axison]
  assert len(panels) == len(table.contrasts)
  # -1.5, -0.5, 0.5 and 1.5, each with an interval of 0.8 to each side.
  assert panels[0].get_title(loc='left') == (
    'Other tokens than [MASK] help\nholds in 1, does not show in 2'
  )
  assert (
    panels[1]
    .get_title(loc='left')
    .endswith('\nholds in 1, reversed in 1, does not show in 2')
  )
  crosses = [
    tuple(place)
    for drawn in panels[0].collections
    if isinstance(drawn, collections.PathCollection)
    for place in drawn.get_offsets().tolist()
  ]
  assert crosses == [(2.0, 1.0), (2.0, 2.0), (2.0, 3.0)]


def test_a_table_of_one_column_has_a_verdict_alone():
  contrast = Contrast('a', 'b', 'c')
  found = contrasts.Difference(contrast, 'x', None, 2.0, 0.1, 4)
  assert contrast_figure.describe_verdicts([found]) == 'holds'
