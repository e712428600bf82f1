"""Texts inside of elements are escaped, elements are not."""

from train.host import markup


def test_texts_and_attributes_are_escaped():
  inner = markup.element('b', '<i>', 1)
  made = markup.element('p', 'a & ', inner, title='"x"', class_='a', id=None)
  assert made == (
    '<p title="&quot;x&quot;" class="a">a &amp; <b>&lt;i&gt;1</b></p>'
  )
  assert markup.element('line', x1=0, stroke_width=2) == (
    '<line x1="0" stroke-width="2"/>'
  )


def test_a_table_has_heads():
  made = markup.table('a < b', [['', 'x'], ['row', '<']], class_='t')
  assert made == (
    '<table class="t"><caption>a &lt; b</caption><thead><tr>'
    '<th scope="col"></th><th scope="col">x</th></tr></thead><tbody><tr>'
    '<th scope="row">row</th><td>&lt;</td></tr></tbody></table>'
  )
