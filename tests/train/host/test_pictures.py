"""Figures show what a user wrote."""

import itertools

import numpy as np
import pytest
from matplotlib import font_manager

from train.host import pictures


def test_a_dollar_begins_no_formula(tmp_path):
  canvas = pictures.figure(2, 1)
  text = 'from $5 to $6'
  title = canvas.suptitle(pictures.shown(text))
  pictures.save(canvas, tmp_path / 'a.png', dpi=50)
  assert title.get_text() == r'from \$5 to \$6'


def test_labels_of_a_figure_keep_apart_and_inside(tmp_path):
  canvas = pictures.figure(3, 3)
  axes = canvas.subplots()
  points = np.random.default_rng(0).normal(0, 1, (12, 2))
  points[1] = points[0]
  axes.scatter(*points.T)
  axes.margins(0.2)
  names = [f'name {i}' for i in range(12)]
  pictures.label(canvas, [(axes, points, names)], [[(0, 5)]], size=7)
  pictures.save(canvas, tmp_path / 'a.png', dpi=100)
  boxes = [text.get_window_extent() for text in axes.texts]
  assert len(boxes) == 12
  for first, second in itertools.combinations(boxes, 2):
    assert not first.overlaps(second)
  frame = axes.get_window_extent()
  for box in boxes:
    assert frame.x0 <= box.x0 and box.x1 <= frame.x1
    assert frame.y0 <= box.y0 and box.y1 <= frame.y1


@pytest.mark.filterwarnings('error')
def test_letters_that_no_font_has_are_told(tmp_path, monkeypatch, capsys):
  assert pictures.fonts('plain, ä and -') == ['DejaVu Sans']
  assert not capsys.readouterr().err
  monkeypatch.setattr(font_manager, 'findSystemFonts', list)
  families = pictures.fonts('a 漢')
  assert families == ['DejaVu Sans']
  assert 'no installed font has 漢: a box stands for it' in (
    capsys.readouterr().err
  )
  canvas = pictures.figure(2, 1)
  canvas.suptitle('漢', family=families)
  pictures.save(canvas, tmp_path / 'a.png', dpi=50)  # without a warning
