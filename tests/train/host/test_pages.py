"""Pages whole in one file: nothing that they hold is taken for something else.

`test_word_page.py` and `test_attention_page.py` open real ones in a browser.
"""

import ast
import html.parser
import json
import pathlib

import pytest

from train.host import pages

ROOT = pathlib.Path(__file__).parents[3]
HOSTILE = '</script><!-- {{data}} {{title}} \\1 & "\' \u2028 \U0001f3e6 \udc80'


class Parser(html.parser.HTMLParser):
  """Collects the text of each element, and the value of an attribute."""

  def __init__(self, text):
    super().__init__()
    self.names, self.texts, self.title = [], {}, None
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attributes):
    self.names.append(tag + str(dict(attributes).get('id', '')))
    self.title = dict(attributes).get('title', self.title)

  def handle_data(self, data):
    name = self.names[-1] if self.names else None
    self.texts[name] = self.texts.get(name, '') + data


@pytest.fixture
def folder(tmp_path):
  for name, text in {
    'page.html': '<style>{{style}}</style><p title="{{title}}">{{title}}'
    '<script id="data">{{data}}</script><script>{{script}}</script>',
    'style.css': 'p { quotes: "{{data}}" }',
    'b.js': 'const b = "{{title}}";',
    'a.js': 'b + "«";',
  }.items():
    (tmp_path / name).write_text(text, encoding='utf-8')
  return tmp_path


def test_each_part_comes_through_as_it_was(folder):
  data = {HOSTILE: [HOSTILE, 0.1, None]}
  parser = Parser(pages.fill(folder, ['b.js', 'a.js'], data, title=HOSTILE))
  assert parser.names == ['style', 'p', 'scriptdata', 'script']
  assert json.loads(parser.texts['scriptdata']) == data
  assert parser.title == parser.texts['p'] == HOSTILE
  assert parser.texts['style'] == 'p { quotes: "{{data}}" }'
  assert parser.texts['script'] == 'const b = "{{title}}";\nb + "«";'


def test_marks_and_numbers_that_do_not_fit(folder):
  for texts in ({}, {'title': '', 'word': ''}):
    with pytest.raises(
      ValueError, match=r'page\.html: found the marks \[.*tit'
    ):
      pages.fill(folder, [], {}, **texts)
  with pytest.raises(ValueError, match='infinity or NaN among the numbers'):
    pages.fill(folder, [], [float('nan')], title='')


def test_pages_are_installed_with_their_packages():
  calls = ast.walk(ast.parse((ROOT / 'setup.py').read_text()))
  given = next(
    ast.literal_eval(keyword.value)
    for call in calls
    if isinstance(call, ast.Call)
    for keyword in call.keywords
    if keyword.arg == 'package_data'
  )
  folders = [path.parent for path in (ROOT / 'train').rglob('page.html')]
  folders.append(ROOT / 'configs/tables/published')
  assert given == {
    '.'.join(folder.parent.relative_to(ROOT).parts): [f'{folder.name}/*']
    for folder in folders
  }
