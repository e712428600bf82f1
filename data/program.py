"""How the user calls a program of Sesame."""

import pathlib
import sys


def called(module: str) -> str:
  """Returns the words that begin the command of a module: 'sesame NAME'.

  If Python was not started by `sesame`, they are 'python -m MODULE'.
  """
  words = sys.orig_argv[1:3]
  if len(words) == 2 and pathlib.Path(words[0]).stem == 'sesame':
    return f'sesame {words[1]}'
  return f'python -m {module}'
