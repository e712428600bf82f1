"""A process that trains, and strikes itself as the variable KILL says.

KILL is a `kills.Kill` as JSON; a process without it trains to the end.
"""

import json
import os
import signal
import sys
import threading
import types
from typing import Any

START_UP = (('plan', 'print_plan'), ('metrics', 'MetricsWriter'))


def main() -> None:
  """Trains by train.main with this program's arguments."""
  from train import main as train_main
  from train.engine import evaluate
  from train.pretrain import plan
  from train.run import checkpoint, ledger, metrics

  sys.argv[0] = 'train.main'
  told = json.loads(os.environ.get('KILL', 'null'))
  kill = told and types.SimpleNamespace(**told)
  steps_per_epoch = int(os.environ['STEPS_PER_EPOCH'])

  def strike(delay: float = 0.0) -> None:
    if delay:  # the training goes on until then
      threading.Timer(delay, strike).start()
    else:
      os.kill(os.getpid(), getattr(signal, kill.signal))

  def wrap(owner: Any, name: str, around: Any) -> None:
    inner = getattr(owner, name)
    setattr(owner, name, lambda *a, **k: around(inner, *a, **k))

  chances = 0

  def at_start(inner, *a, **k):
    result = inner(*a, **k)
    strike()
    return result

  def at_step(inner, self, step, *rest):
    nonlocal chances
    chances += 1
    if kill.moment == 'epoch end':
      if step % steps_per_epoch == 0 and chances:
        strike()
    elif chances == kill.count:
      strike(kill.delay if kill.moment == 'mid-epoch' else 0.0)
    return inner(self, step, *rest)

  def at_evaluation(inner, eval_step, params, languages, *a, **k):
    def struck(batches):
      for i, batch in enumerate(batches):
        if i == kill.count % 2:
          strike(kill.delay)
        yield batch

    parts = {name: struck(batches) for name, batches in languages.items()}
    return inner(eval_step, params, parts, *a, **k)

  def at_save(inner, *a, **k):
    strike(kill.delay + 0.001)
    return inner(*a, **k)

  if kill is not None:
    if kill.moment == 'start-up':
      module, name = START_UP[kill.count % 2]
      wrap({'plan': plan, 'metrics': metrics}[module], name, at_start)
    elif kill.moment == 'evaluation':
      wrap(evaluate, 'evaluate', at_evaluation)
    elif kill.moment == 'save':
      wrap(checkpoint.Checkpoints, 'save', at_save)
    else:
      wrap(ledger.Ledger, 'count', at_step)
  train_main.main()


if __name__ == '__main__':
  main()
