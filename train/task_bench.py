"""How fast labelled sets become what models read."""

import pathlib
import time
from collections.abc import Sequence
from typing import Any

from data import tokenization
from data.tasks import batches, framing, registry
from data.tasks.examples import Example, Task
from data.tokenization import WordPiece

MAX_LENGTH = 384  # of SQuAD (google-research/bert, README)
BATCH_SIZE = 32


def bench_squad_features(data: str, weights: str) -> dict[str, Any]:
  """Seconds in which SQuAD 1.1's training set becomes windows of 384 tokens.

  Args:
    data: folder of the labelled sets.
    weights: a folder with a BERT's vocabulary.
  """
  task = registry.find('squad1')
  began = time.perf_counter()
  examples = registry.load(task, data, 'train')
  seconds = time.perf_counter() - began
  tokenizer = tokenization.load(pathlib.Path(weights))
  found = squad_features_seconds(task, examples, tokenizer)
  return found | {'read_seconds': seconds}


def squad_features_seconds(
  task: Task, examples: Sequence[Example], tokenizer: WordPiece
) -> dict[str, Any]:
  """Measures questions on their way to batches, after they are read.

  Args:
    task: of spans, such as SQuAD.
    examples: questions; the 87,599 of SQuAD 1.1's training set for the figure
      that is reported.
    tokenizer: of a BERT.

  Returns:
    `questions`, `features` (windows) and `tokens`; `seconds` in which one
    became the other; `batch_ms`, milliseconds of a batch of 32 in an epoch.
  """
  began = time.perf_counter()
  features = framing.encode(task, examples, tokenizer, MAX_LENGTH)
  seconds = time.perf_counter() - began
  made = batches.Batches(
    features, pad_id=tokenizer.pad_id, max_length=MAX_LENGTH
  )
  steps = max(1, len(features) // BATCH_SIZE)
  began = time.perf_counter()
  for step in range(steps):
    made.train_batch(step, slice(None), BATCH_SIZE, 0, steps)
  return {
    'questions': len(examples),
    'features': len(features),
    'tokens': len(features.tokens),
    'seconds': seconds,
    'batch_ms': 1e3 * (time.perf_counter() - began) / steps,
  }
