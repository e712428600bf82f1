"""The page of one word: whole in itself, and right in a browser."""

import html.parser
import json

import browser
import numpy as np
import pytest

from data.tasks.senses.occurrences import Occurrence
from train.meanings import word_map, word_page

WORD = 'b<a>nk'
SENTENCES = [
  f'<b> \U0001f3e6 the {WORD} & "river" </script>',
  WORD + ' {{script}} it',
  f'a {WORD}',
]


@pytest.fixture(scope='module')
def figures():
  vectors = np.random.default_rng(0).normal(0.3, 1, (3, 2, 5))
  occurrences = [
    Occurrence(f'line {number}', tuple(words), words.index(WORD))
    for number, words in enumerate(map(str.split, SENTENCES), start=1)
  ]
  return word_map.describe(WORD, 'weights <1> {{data}}', occurrences, vectors)


class Parser(html.parser.HTMLParser):
  """Collects the text of scripts by id, all attributes, and open elements."""

  EMPTY = ('meta', 'link')

  def __init__(self):
    super().__init__()
    self.scripts, self.attributes, self.open = {}, [], []

  def handle_starttag(self, tag, attributes):
    self.attributes += attributes
    if tag not in self.EMPTY:
      self.open.append((tag, dict(attributes)))

  def handle_endtag(self, tag):
    assert self.open.pop()[0] == tag

  def handle_data(self, data):
    if self.open and self.open[-1][0] == 'script':
      self.scripts[self.open[-1][1].get('id')] = data


def test_the_page_holds_the_figures_and_nothing_from_elsewhere(figures):
  text = word_page.as_html(figures)
  parser = Parser()
  parser.feed(text)
  parser.close()
  assert not parser.open
  addresses = {'src', 'href', 'srcset', 'action', 'data'}
  assert [value for name, value in parser.attributes if name in addresses] == [
    'data:,'
  ]  # the icon: none
  for reference in ('://', 'url(', '@import', 'fetch', 'import('):
    assert reference not in text.replace('http://www.w3.org/', '')
  data = json.loads(parser.scripts['data'])
  for layer, expected in zip(data['layers'], figures['layers'], strict=True):
    for name in ('cosines', 'points', 'variance_shares', 'mean_cosine'):
      np.testing.assert_allclose(layer[name], expected[name], atol=5.1e-5)
  for row, sentence in zip(data['rows'], SENTENCES, strict=True):
    assert row['sentence'] == sentence
    units = sentence.encode('utf-16-le')
    marked = units[2 * row['begin'] : 2 * row['end']].decode('utf-16-le')
    assert marked == WORD
  assert '“b&lt;a&gt;nk” in 3 places' in text
  assert 'weights &lt;1&gt; {{data}}' in text


@pytest.fixture(scope='module')
def driver():
  with browser.chromium() as driver:
    yield driver


def test_in_a_browser(driver, figures, tmp_path):
  from selenium.webdriver.common.action_chains import ActionChains
  from selenium.webdriver.common.by import By
  from selenium.webdriver.common.keys import Keys

  page = tmp_path / 'a.html'
  page.write_text(word_page.as_html(figures))
  driver.get(page.as_uri())

  def all_of(selector):
    return driver.find_elements(By.CSS_SELECTOR, selector)

  def said():
    return driver.find_element(By.ID, 'said').text

  def numbers(selector):
    return [float(each.text) for each in all_of(selector)]

  def check(layer):
    expected = figures['layers'][layer]
    shown = numbers('#cosines tbody td')
    np.testing.assert_allclose(shown, np.ravel(expected['cosines']), atol=0.006)
    shown = numbers('#rows td:nth-child(n + 3)')
    np.testing.assert_allclose(shown, np.ravel(expected['points']), atol=1e-4)
    pressed = [each.get_attribute('aria-pressed') for each in all_of('button')]
    assert pressed == ['true' if i == layer else 'false' for i in range(2)]
    places = [
      each.get_attribute('transform')[10:-1].split()
      for each in all_of('.point')
    ]
    drawn = np.array(places, float) - 240
    points = np.array(expected['points']) * [1, -1]
    scale = 204 / abs(points).max()
    np.testing.assert_allclose(drawn, scale * points, atol=0.02)

  check(1)  # the top layer at first
  all_of('button')[0].click()
  check(0)
  ActionChains(driver).send_keys(Keys.ARROW_RIGHT).perform()
  check(1)
  assert all_of('#rows mark')[1].text == WORD
  assert all_of('#rows .text')[1].text == SENTENCES[0]
  # By the mouse and by the keyboard, a dot tells its sentence.
  shown = [text.replace(WORD, f'[{WORD}]') for text in SENTENCES]
  ActionChains(driver).move_to_element(all_of('.point')[2]).perform()
  assert said() == f'3: {shown[2]}'
  driver.execute_script('arguments[0].focus()', all_of('.point')[0])
  assert said() == f'1: {shown[0]}'
  # And a cell both sentences and all digits; arrows move between cells.
  driver.execute_script('arguments[0].focus()', all_of('#cosines td')[1])
  ActionChains(driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN).perform()
  ActionChains(driver).send_keys(Keys.ARROW_DOWN).perform()
  value = round(figures['layers'][1]['cosines'][2][1], 4)
  assert said() == f'cosine {value}\n3: {shown[2]}\n2: {shown[1]}'
  assert {each.get_attribute('data-row') for each in all_of('.on')} == {
    '1',
    '2',
  }
  check(1)
  # No error; nothing but the file was asked for, nor could it be.
  assert not driver.get_log('browser')
  assert browser.asked_for(driver) == {page.as_uri()}
  assert not browser.may_ask(driver)
