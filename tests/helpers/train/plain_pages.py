"""Pages without scripts in a browser, and texts that could break one."""

import browser

HOSTILE = {
  'script': '</script><script>document.title = "owned"</script>',
  'quotes': '"She said \'no\' & left" <b title="x" onclick=\'y\'>',
  'right to left': 'שלום עולם مرحبا',
  'emoji': 'fine 👩🏽\u200d🚀 🏦',
  'long': 'word ' * 1000,  # 5,000 characters
}


def open_page(driver, path):
  """Opens a page; it logs nothing, and asks for nothing but itself."""
  browser.asked_for(driver)
  driver.get(path.resolve().as_uri())
  assert not driver.get_log('browser')
  assert browser.asked_for(driver) == {path.resolve().as_uri()}
  assert not driver.execute_script('return document.scripts.length')
  assert driver.title != 'owned'


def texts(driver, selector):
  """Returns the texts of elements."""
  return driver.execute_script(
    'return [...document.querySelectorAll(arguments[0])]'
    '.map((each) => each.textContent)',
    selector,
  )
