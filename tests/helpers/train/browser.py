"""Headless Chromium for tests of pages."""

import contextlib
import json
import shutil

import pytest

BROWSERS = 'chromium', 'chromium-browser', 'google-chrome'
DRIVERS = ('chromedriver',)


@contextlib.contextmanager
def chromium():
  """Yields a driver that logs errors and requests; skips where there is none.

  The skip's reason says what to install.
  """
  webdriver = pytest.importorskip(
    'selenium.webdriver', reason='drives Chromium: pip install selenium'
  )
  programs = [
    next(filter(None, map(shutil.which, names)), None)
    for names in (BROWSERS, DRIVERS)
  ]
  if not all(programs):
    pytest.skip('no Chromium: apt-get install chromium chromium-driver')
  options = webdriver.ChromeOptions()
  options.binary_location = programs[0]
  for argument in (
    'headless=new',
    'no-sandbox',
    'disable-gpu',
    'window-size=1200,900',
  ):
    options.add_argument(f'--{argument}')
  kinds = {'browser': 'ALL', 'performance': 'ALL'}
  options.set_capability('goog:loggingPrefs', kinds)
  service = webdriver.ChromeService(programs[1])
  driver = webdriver.Chrome(options=options, service=service)
  try:
    yield driver
  finally:
    driver.quit()


def asked_for(driver):
  """Returns the addresses asked for since the log was last read.

  Without data:, which asks nobody, and is logged at some times only.
  """
  messages = [
    json.loads(entry['message'])['message']
    for entry in driver.get_log('performance')
  ]
  addresses = {
    message['params']['request']['url']
    for message in messages
    if message['method'] == 'Network.requestWillBeSent'
  }
  return {each for each in addresses if not each.startswith('data:')}


def may_ask(driver):
  """Returns whether the open page itself lets its scripts ask for addresses.

  A refusal, unlike a missing network, is an event of its own.
  """
  allowed = driver.execute_async_script(
    'const [done] = arguments;'
    'addEventListener("securitypolicyviolation", () => done(false));'
    'const tell = () => setTimeout(() => done(true), 1000);'
    'fetch("https://sesame.invalid").then(tell, tell);'
  )
  driver.get_log('browser')  # which tells of the refusal
  return allowed
