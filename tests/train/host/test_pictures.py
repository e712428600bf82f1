"""Figures show what a user wrote."""

from train.host import pictures


def test_a_dollar_begins_no_formula(tmp_path):
  canvas = pictures.figure(2, 1)
  text = 'from $5 to $6'
  title = canvas.suptitle(pictures.shown(text))
  pictures.save(canvas, tmp_path / 'a.png', dpi=50)
  assert title.get_text() == r'from \$5 to \$6'
