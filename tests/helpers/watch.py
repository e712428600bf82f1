"""A watchdog's clock that a test moves."""

import math
import types

from train.engine import sharding
from train.run import failure


class Watch:
  """Stands in for `faulthandler`: the process dies as an AssertionError.

  Attributes:
    limits: seconds, of each sign of life.
  """

  def __init__(self):
    self.limits = []
    self._now, self._end = 0.0, math.inf

  def dump_traceback_later(self, seconds, *, exit, file):
    assert exit
    self.limits.append(seconds)
    self._end = self._now + seconds

  def cancel_dump_traceback_later(self):
    self._end = math.inf

  def spend(self, seconds):
    self._now += seconds
    assert self._now < self._end, 'the watchdog ended the process'


def install(patch, seconds_a_batch=0.0):
  """Returns a watch; every batch that goes to the devices takes so long."""
  watch, put_batch = Watch(), sharding.put_batch

  def put_slowly(batch, mesh):
    watch.spend(seconds_a_batch)
    return put_batch(batch, mesh)

  patch.setattr(failure, 'faulthandler', watch)
  patch.setattr(sharding, 'put_batch', put_slowly)
  return watch


def jitted(function):
  """Returns a function that can be compiled, which takes no time."""
  program = types.SimpleNamespace(compile=lambda: None)
  function.lower = lambda *arguments: program
  return function
