"""What the programs that tests start do before anything else.

They find no PyTorch, which tensorboardX would import: it takes two seconds of
each, and no program of ours uses it. And they write compiled programs whole.
"""

import importlib.abc
import importlib.util
import sys


class Finder(importlib.abc.MetaPathFinder):
  """Stands before all others."""

  def find_spec(self, name, path, target=None):
    if name == 'torch':
      raise ModuleNotFoundError('no PyTorch in programs of tests', name=name)
    if name != 'jax._src.lru_cache':
      return None
    sys.meta_path.remove(self)
    spec = importlib.util.find_spec(name)
    sys.meta_path.insert(0, self)
    execute = spec.loader.exec_module

    def execute_and_change(module):
      import program_cache

      execute(module)
      program_cache.install(module.LRUCache)

    spec.loader.exec_module = execute_and_change
    return spec


sys.meta_path.insert(0, Finder())
