"""Rows of many sentences hold each target and its vectors, in few shapes."""

import numpy as np
import probe_examples

from train.probing import batches
from train.probing.batches import Packer


def contents(batch):
  """Returns each target as (vectors of each span, classes), sorted bytes."""
  found = []
  for row, place in zip(*np.nonzero(batch.mask), strict=True):
    parts = [batch.labels[row, place].tobytes()]
    for layers, spans in zip(batch.layers, batch.spans, strict=True):
      first, end = spans[row, place]
      parts.append(layers[row, first:end].tobytes())
    found.append(b''.join(parts))
  return sorted(found)


def expected(layers, examples):
  found = []
  for example in examples:
    for number, labels in enumerate(example.labels):
      parts = [labels.tobytes()]
      for pieces, spans in zip(example.pieces, example.spans, strict=True):
        first, end = spans[number]
        parts.append(layers[pieces[first:end]].tobytes())
      found.append(b''.join(parts))
  return sorted(found)


def test_rows_hold_every_target():
  layers = probe_examples.vectors()
  examples = probe_examples.split(200, num_spans=2).examples
  packer = Packer(layers, examples, 32)
  batch = packer.pack(examples[:32])
  assert contents(batch) == expected(layers, examples[:32])
  # Padding is empty: no span, no class, no vector behind the last.
  assert not batch.labels[~batch.mask].any()
  assert not batch.spans[0][~batch.mask].any()
  assert batch.layers[0].dtype == np.float16
  scored = [x for b in packer.scoring(examples) for x in contents(b)]
  assert sorted(scored) == expected(layers, examples)
  # Few programs, and little padding.
  shapes = {
    tuple(x.shape[1] for x in (*b.layers, b.mask))
    for b in packer.training(examples, 100)
  }
  assert len(shapes) <= 6
  filled = np.mean([b.mask.mean() for b in packer.training(examples, 100)])
  assert filled > 0.6
  # A batch of any size fits: of one sentence, and of all.
  for part in (examples[:1], examples):
    assert contents(packer.pack(part)) == expected(layers, part)


def test_an_epoch_has_each_sentence_once():
  layers = probe_examples.vectors()
  examples = probe_examples.split(48).examples
  packer = Packer(layers, examples, 16)
  found = list(packer.training(examples, 9))
  for epoch in range(3):
    part = found[3 * epoch : 3 * epoch + 3]
    targets = sorted(x for batch in part for x in contents(batch))
    assert targets == expected(layers, examples)
  assert contents(found[0]) != contents(found[3])
  again = next(iter(packer.training(examples, 1)))
  assert contents(again) == contents(found[0])
  # Fewer sentences than a batch.
  (batch,) = Packer(layers, examples, 99).training(examples, 1)
  assert contents(batch) == expected(layers, examples)
  assert batch.mask.shape[0] == batches.ROWS
