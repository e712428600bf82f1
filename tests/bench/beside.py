"""Measures ours beside other people's programs, in turns.

python tests/bench/beside.py [NAME ...] takes the options of
`python -m train.bench`, and measures those of its benches that have rivals;
python tests/bench/beside.py pretraining compares what is learned, see
`pretraining.py`.
"""

import sys

import elmo_torch
import hugging_face
import pretraining
import tuning

from train import bench
from train.benches import timing

# Name of a bench -> name of a rival -> see `timing.Programs`.
RIVALS: dict[str, timing.Programs] = {
  'step': {'hugging_face': (hugging_face.step, {})},
  'gpt2_step': {'hugging_face': (hugging_face.step, {})},
  'decoding': {'hugging_face': (hugging_face.decoding, {})},
  'embedding': {
    'equal_padding': (hugging_face.embedding, {'equal_padding': True}),
    'plain_loop': (hugging_face.embedding, {'equal_padding': False}),
  },
  'elmo_step': {'pytorch': (elmo_torch.step, {})},
  'elmo_embedding': {'pytorch': (elmo_torch.embedding, {})},
  # Trainer's batches: in a random order, each padded to its longest or to 128
  # tokens; of like lengths, padded to the longest.
  'finetune': {
    'dynamic': (tuning.epoch, {'sampling': 'random', 'padded': False}),
    'padded': (tuning.epoch, {'sampling': 'random', 'padded': True}),
    'grouped': (tuning.epoch, {'sampling': 'group_by_length', 'padded': False}),
  },
  'accelerator': {'hugging_face': (hugging_face.step, {})},
  'products': {'torch': (hugging_face.products, {})},
}

if __name__ == '__main__' and sys.argv[1:2] == ['pretraining']:
  pretraining.main()
elif __name__ == '__main__':
  bench.main('python tests/bench/beside.py', RIVALS)
