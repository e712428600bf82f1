"""Files as Flax's classes of transformers 3 and 4 wrote them."""

import json

from flax import serialization, traverse_util

FILE = 'flax_model.msgpack'


def named(model):
  """Returns 'path/of/array' -> array of a PyTorch BERT or GPT-2.

  The rule of transformers 4's modeling_flax_pytorch_utils.py: tables are named
  embedding, scales of a norm scale, all other matrices kernel and transposed.
  """
  import torch

  kinds = {
    f'{name}.weight': kind
    for name, part in model.named_modules()
    for kind, classes in (
      ('embedding', torch.nn.Embedding),
      ('scale', torch.nn.LayerNorm),
    )
    if isinstance(part, classes)
  }
  arrays = {}
  for name, parameter in model.named_parameters():  # tied ones once
    *layers, last = name.split('.')
    array = parameter.detach().numpy()
    if last == 'weight':
      last = kinds.get(name, 'kernel')
      array = array.T.copy() if last == 'kernel' else array
    arrays['/'.join((*layers, last))] = array
  return arrays


def write(folder, arrays):
  """Writes one file."""
  tree = traverse_util.unflatten_dict(arrays, sep='/')
  (folder / FILE).write_bytes(serialization.to_bytes(tree))


def write_shards(folder, arrays):
  """Writes two files and their index."""
  names, weight_map = sorted(arrays), {}
  for i, part in enumerate((names[::2], names[1::2])):
    file = f'flax_model-0000{i + 1}-of-00002.msgpack'
    tree = {name: arrays[name] for name in part}
    tree = traverse_util.unflatten_dict(tree, sep='/')
    (folder / file).write_bytes(serialization.to_bytes(tree))
    weight_map |= dict.fromkeys(part, file)
  index = json.dumps({'metadata': {}, 'weight_map': weight_map})
  (folder / f'{FILE}.index.json').write_text(index)
