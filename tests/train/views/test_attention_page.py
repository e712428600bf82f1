"""The page in a browser: it draws, keys and hover work, numbers are right."""

import json
import re
import time

import attention_cases
import numpy as np
import pytest
from browser import asked_for, chromium, may_ask

from train.views import attention_page, attention_shares

DRAWN_SECONDS = 1.0
# A weight in 8 bits, printed with 3 digits; shares with 4, in cells in percent.
OF_WEIGHT, OF_SHARE = 0.5 / 255 + 0.0005, 0.0001


class Browser:
  """Headless Chromium: one page at a time."""

  def __init__(self, driver):
    self.driver = driver
    self.run = driver.execute_script

  def open(self, path):
    self.driver.get_log('performance')  # of earlier pages
    self.driver.get(path.as_uri())
    self.wait('document.body.dataset.drawn')
    return int(self.run('return document.body.dataset.drawn')) / 1000

  def wait(self, condition):
    for _ in range(200):
      if self.run(f'return Boolean({condition})'):
        return
      time.sleep(0.05)
    raise AssertionError(f'{condition} never came true')

  def keys(self, *names):
    """Presses keys where the focus is."""
    from selenium.webdriver.common.keys import Keys

    for name in names:
      self.driver.switch_to.active_element.send_keys(getattr(Keys, name))

  def focused(self):
    return self.run('return document.activeElement.getAttribute("aria-label")')

  def texts(self, selector):
    return self.run(
      'return [...document.querySelectorAll(arguments[0])]'
      '.map((each) => each.textContent)',
      selector,
    )

  def table(self, name, caption=''):
    """Opens a table, waits for a caption; returns rows without headers."""
    box = f'document.getElementById("{name}")'
    self.run(f'{box}.open = true')
    title = f'{box}.querySelector("caption")?.textContent'
    self.wait(f'{title}?.includes({json.dumps(caption)})')
    rows = self.run(
      f'return [...{box}.querySelectorAll("tbody tr")].map((row) =>'
      ' [...row.cells].slice(1).map((cell) => cell.textContent))'
    )
    return np.array(
      [[np.nan if cell == '–' else float(cell) for cell in row] for row in rows]
    )


@pytest.fixture(scope='module')
def browser():
  with chromium() as driver:
    yield Browser(driver)


@pytest.fixture
def show(browser, tmp_path):
  """Returns a function (attentions, options) -> the page, opened and drawn."""

  def show(*attentions, causal=False, precise=False):
    page = attention_cases.page_of(*attentions, causal=causal)
    path = tmp_path / 'a page & <more>.html'
    path.write_text(attention_page.as_html(page, precise=precise))
    browser.open(path)
    return browser

  yield show
  log = browser.driver.get_log('browser')
  errors = [entry for entry in log if entry['level'] == 'SEVERE']
  assert not errors, errors


def choose_head(page, layer, head):
  page.run(
    'document.querySelectorAll(".head")[arguments[0]].focus()', 3 * layer + head
  )


@pytest.mark.parametrize('precise', [False, True])
def test_numbers_are_the_arrays(show, precise):
  found = attention_cases.drawn(2, 3, 11, 4)
  page = show(found, precise=precise)
  assert page.texts('.from .piece') == page.texts('.to .piece') == found.pieces
  assert [
    'first' in kind or 'second' in kind
    for kind in page.run(
      'return [...document.querySelectorAll(".from .token")]'
      '.map((each) => each.className)'
    )
  ] == [not symbol for symbol in found.row.symbols]

  for layer, head in ((0, 0), (1, 2)):
    choose_head(page, layer, head)
    table = page.table('weights-table', f'Layer {layer + 1}, head {head + 1}')
    error = np.abs(table - found.weights_LNTS[layer, head])
    assert 0 < error.max() < (2e-5 if precise else OF_WEIGHT)

  # The pair that is chosen: query 7, and a key chosen by the keyboard.
  page.run('document.querySelectorAll(".from .token")[7].focus()')
  page.wait('document.querySelector("#products [aria-selected=true]")')
  page.run('document.querySelector("#products [aria-selected=true]").focus()')
  page.keys('HOME')
  page.wait('document.activeElement === document.querySelector("#products li")')
  page.keys('ARROW_DOWN')
  page.wait(
    'document.activeElement === document.querySelectorAll("#products li")[1]'
  )
  query, key = found.query_LTNH[1, 7, 2], found.key_LSNH[1, 1, 2]
  given = page.table(
    'pair-table', f'{found.pieces[7]}, key of {found.pieces[1]}'
  )
  expected = np.stack([query, key, query * key / 2], axis=1)
  assert 0 < np.abs(given - expected).max() < (2e-3 if precise else 0.06)
  score = float(re.search(r'score (\S+),', page.focused())[1])
  assert score == pytest.approx((query @ key) / 2, abs=0.1)

  shares = attention_shares.measure(found, causal=False, null_key=False)
  expected = np.stack([array.ravel() for array in shares.values()], axis=1)
  assert np.abs(page.table('shares-table') - expected).max() < OF_SHARE
  for name, array in shares.items():
    page.run(
      'const choice = document.getElementById("measure");'
      'choice.value = arguments[0];'
      'choice.dispatchEvent(new Event("change"));',
      name,
    )
    cells = np.array(page.texts('.head'), float)
    assert np.abs(cells - 100 * array.ravel()).max() < 0.51
    labels = page.run(
      'return [...document.querySelectorAll(".head")]'
      '.map((each) => each.getAttribute("aria-label"))'
    )
    title = re.escape(attention_shares.MEASURES[name][0])
    read = [float(re.search(rf'{title} ([\d.]+)', each)[1]) for each in labels]
    assert np.abs(read - array.ravel()).max() < 0.00056


def test_keys_alone_reach_everything(show):
  found = attention_cases.drawn(2, 3, 11, 4)
  page = show(found)
  choose_head(page, 0, 0)
  page.keys('ARROW_RIGHT', 'ARROW_DOWN', 'ARROW_DOWN', 'ARROW_LEFT', 'END')
  assert page.focused().startswith('Layer 2, head 3: first token 0.')
  assert page.texts('#chosen') == ['Layer 2, head 3']
  page.keys('TAB')  # one stop of the grid, then the tokens
  at = found.pieces.index('bank')
  assert page.run('return document.activeElement.closest("ul").className') == (
    'tokens from'
  )
  page.keys('HOME', *['ARROW_DOWN'] * at)
  weights = found.weights_LNTS[1, 2]
  assert page.focused().startswith(
    f'bank, token {at + 1}, text 1, attends most'
  )
  top = np.sort(weights[at])[::-1][:3]
  spoken = [float(each) for each in re.findall(r'(0\.\d+)', page.focused())]
  assert np.abs(spoken - top).max() < OF_WEIGHT

  shown = np.array(page.texts('.to .number'), float)
  assert np.abs(shown - weights[at]).max() < 0.5 / 255 + 0.005
  page.keys('ARROW_RIGHT')  # the same token, attended
  assert page.focused().startswith(f'bank, token {at + 1}, text 1, gets most')
  shown = np.array(page.texts('.from .number'), float)
  assert np.abs(shown - weights[:, at]).max() < 0.5 / 255 + 0.005
  assert not any(page.texts('.to .number'))
  page.keys('ESCAPE')
  assert not any(page.texts('.number'))
  page.wait('!document.querySelector("#products li")')
  # Every control has a name.
  assert not page.run(
    'return [...document.querySelectorAll("button, [role=option], select")]'
    '.filter((each) => !each.getAttribute("aria-label"))'
    '.filter((each) => !each.labels?.length).length'
  )


def test_hover_shows_the_lines_of_a_token(show):
  from selenium.webdriver import ActionChains

  found = attention_cases.drawn(2, 3, 11, 4)
  found.weights_LNTS[1, 1, 6] = np.eye(11)[2]  # one line, from 6 to 2
  page = show(found)
  choose_head(page, 1, 1)
  page.run('document.querySelectorAll(".from .token")[3].focus()')

  def ends():
    """Which tokens a line reaches on the right."""
    return page.run(
      'const canvas = document.querySelector(".columns canvas");'
      'const {width, height} = canvas;'
      'const all = canvas.getContext("2d").getImageData(0, 0, width, height);'
      'return [...Array(11).keys()].map((i) => {'
      '  const y = Math.floor(height * (i + 0.5) / 11);'
      '  return all.data[4 * (y * width + width - 6) + 3] > 100;'
      '});'
    )

  token = page.driver.find_elements('css selector', '.from .token')[6]
  ActionChains(page.driver).move_to_element(token).perform()
  page.wait(
    'document.querySelectorAll(".from .token")[6].ariaSelected === "true"'
  )
  assert ends() == [i == 2 for i in range(11)]
  assert page.texts('.to .number')[2] == '1.00'
  title = page.driver.find_element('css selector', 'h1')
  ActionChains(page.driver).move_to_element(title).perform()
  page.wait(
    'document.querySelectorAll(".from .token")[6].ariaSelected === "false"'
  )


def test_left_to_right_and_two_texts(show):
  one = attention_cases.drawn(2, 3, 11, 4, causal=True, pair=False)
  two = attention_cases.drawn(2, 3, 7, 4, seed=1, causal=True, pair=False)
  page = show(one, two, causal=True)
  assert len(page.texts('.panel')) == 2
  assert page.texts('.from .piece') == one.pieces + two.pieces
  choose_head(page, 1, 2)
  for panel, found in ((0, one), (1, two)):
    page.run(
      'document.querySelectorAll(".panel")[arguments[0]]'
      '.querySelectorAll(".from .token")[4].focus()',
      panel,
    )
    page.wait('document.querySelectorAll("#products li").length === 5')
    table = page.table('weights-table', found.text.first)
    weights = found.weights_LNTS[1, 2]
    assert (np.isnan(table) == ~np.tri(len(weights), dtype=bool)).all()
    assert np.nanmax(np.abs(table - weights)) < OF_WEIGHT
  page.run(
    'const choice = document.getElementById("beside");'
    'choice.value = ""; choice.dispatchEvent(new Event("change"));'
  )
  assert page.texts('.from .piece') == one.pieces


def test_selects_show_their_texts_whole(show):
  one, two = (attention_cases.drawn(2, 3, 11, 4, seed=i) for i in (0, 1))
  long = 'a text that fills most of the line of a page with its ninety letters'
  two = two._replace(text=two.text._replace(first=long))
  page = show(one, two)
  assert page.texts('#main option') == [
    '1: Text 0 / and a second',
    f'2: {long} / and a second',
  ]
  # The select is as wide as its widest option, and inside of the page.
  width, needed, room = page.run("""
    const choice = document.getElementById('main');
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.font = getComputedStyle(choice).font;
    const texts = [...choice.options].map((each) => each.textContent);
    return [choice.clientWidth,
      Math.max(...texts.map((each) => canvas.measureText(each).width)),
      document.body.clientWidth];""")
  assert needed < width < room
  page.run("""
    const choice = document.getElementById('main');
    choice.value = 1; choice.dispatchEvent(new Event('change'));""")
  title = page.run('return document.getElementById("main").title')
  assert title == f'{long} / and a second'


def test_light_and_dark(show):
  page = show(attention_cases.drawn(2, 3, 11, 4))
  page.run("""
    window.drawnColours = () => {
      const {backgroundColor, color} = getComputedStyle(document.body);
      const canvas = document.querySelector('.head canvas');
      const pixel = canvas.getContext('2d').getImageData(0, 0, 1, 1).data;
      return [backgroundColor, color, [...pixel].slice(0, 3).join()];
    }""")
  light = page.run('return (window.light = drawnColours())')
  feature = {'name': 'prefers-color-scheme', 'value': 'dark'}
  page.driver.execute_cdp_cmd(
    'Emulation.setEmulatedMedia', {'features': [feature]}
  )
  # Drawn again, pictures too.
  page.wait('!drawnColours().some((each) => light.includes(each))')
  page.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': []})
  page.wait('String(drawnColours()) === String(light)')
  assert light[0] == 'rgb(251, 250, 247)'


def test_size_time_and_no_request(browser, tmp_path):
  """12 layers of 12 heads of 64 dimensions, 64 tokens."""
  page = attention_cases.page_of(attention_cases.drawn(12, 12, 64, 64))
  path = tmp_path / 'page.html'
  path.write_text(attention_page.as_html(page))
  assert path.stat().st_size < 2e6
  assert any(browser.open(path) < DRAWN_SECONDS for _ in range(5))
  assert asked_for(browser.driver) == {path.as_uri()}
  assert not may_ask(browser.driver)
