"""Compiled programs of the tests, kept between runs in the user's cache folder.

`~/.cache/sesame/test_programs` has a folder for each jaxlib, set of XLA flags
and kind of processor; SESAME_TEST_CACHE names another one. Entries that no run
has read for DAYS are removed.
"""

import hashlib
import importlib.metadata
import os
import pathlib
import re
import time

DAYS, NAME = 14, 'test_programs'


def folder() -> pathlib.Path:
  """Returns the folder for this machine's programs."""
  if chosen := os.environ.get('SESAME_TEST_CACHE'):
    return pathlib.Path(chosen)
  home = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
  # JAX tells programs for other numbers of devices apart.
  flags = re.sub(r'--xla_force_host\S+', '', os.environ.get('XLA_FLAGS', ''))
  try:
    processor = pathlib.Path('/proc/cpuinfo').read_text()
    processor = ' '.join(re.findall(r'^flags.*', processor, re.MULTILINE)[:1])
  except OSError:
    processor = ''
  key = hashlib.sha256(f'{sorted(flags.split())} {processor}'.encode())
  name = f'{importlib.metadata.version("jaxlib")}-{key.hexdigest()[:8]}'
  return pathlib.Path(home, 'sesame', NAME, name)


def prune(cache: pathlib.Path, days: float = DAYS) -> None:
  """Removes a cache's entries that no run has read for so many days.

  Those of other flags and processors too, if all lie in the user's cache
  folder; of a folder that the user names, no other file and no other folder is
  touched.
  """
  is_ours = cache.parent.name == NAME and cache.parent.parent.name == 'sesame'
  caches = cache.parent.glob('*') if is_ours else [cache]
  oldest = time.time() - days * 86_400
  for path in [path for each in caches for path in each.glob('*-cache')]:
    try:
      if path.stat().st_mtime < oldest:
        path.unlink()
    except FileNotFoundError:  # another run removed it
      pass


def install(cache: type) -> None:
  """Changes JAX's `LRUCache`: writes entries whole, and marks those it reads.

  JAX writes in place, so that other processes, or runs after a kill, find half
  an entry.
  """
  read = cache.get

  def get(self, key):
    value = read(self, key)
    if value is not None:
      path = self.path / f'{key}-cache'
      if time.time() - path.stat().mtime > 86_400:
        os.utime(path)
    return value

  def put(self, key, value):
    part = self.path / f'{key}.{os.getpid()}'
    try:
      part.write_bytes(value)
      os.replace(part, self.path / f'{key}-cache')
    except OSError:  # no room
      part.unlink(missing_ok=True)
      raise

  cache.get, cache.put = get, put
