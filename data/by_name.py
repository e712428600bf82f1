"""Tables of which a program loads only the entries that it looks up."""

import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any


class ByName(MutableMapping):
  """A mapping whose values are in modules.

  A module is imported when its entry is first looked up; to list the names
  imports nothing.
  """

  def __init__(
    self,
    places: Mapping[str, str],
    pick: Callable[[Any, str], Any] | None = None,
  ):
    """Takes name -> 'module:attribute'.

    With `pick`, (module, name) -> value, a place is the name of a module.
    """
    self._places = dict(places)
    self._pick = pick
    self._found: dict[str, Any] = {}

  def __getitem__(self, name: str) -> Any:
    if name not in self._found:
      module, _, attribute = self._places[name].partition(':')
      found = importlib.import_module(module)
      if self._pick is None:
        self._found[name] = getattr(found, attribute)
      else:
        self._found[name] = self._pick(found, name)
    return self._found[name]

  def __setitem__(self, name: str, value: Any) -> None:
    self._places.setdefault(name, '')
    self._found[name] = value

  def __delitem__(self, name: str) -> None:
    del self._places[name]
    self._found.pop(name, None)

  def __contains__(self, name: object) -> bool:
    return name in self._places

  def __iter__(self) -> Iterator[str]:
    return iter(self._places)

  def __len__(self) -> int:
    return len(self._places)
