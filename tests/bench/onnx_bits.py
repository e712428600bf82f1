"""Vectors of sentences by ONNX files of 32 and of 8 bits.

  python tests/bench/onnx_bits.py WEIGHTS GLUE

On one thread, of the dev set of STS-B in the folder GLUE: the least and the
mean cosine of a text's vector with that of float32, Spearman's correlation with
people's scores, texts a second in batches of 32 of like lengths, milliseconds
of one text, and the size of the file. The forms of 8 bits are ours
(`train.weights export --form=onnx --int8`) and those of onnxruntime's dynamic
quantiser, with a scale for each tensor or for each column.
"""

import argparse
import logging
import pathlib
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
import scipy.stats
import tokenizers
from onnxruntime import quantization

from train.exports import exported, folders
from train.meanings import inputs

BATCH = 32
SINGLE = 100  # texts that are read one at a time
ROUNDS = 3  # in turns; the fastest counts


def write_files(weights: str, folder: pathlib.Path) -> dict[str, pathlib.Path]:
  """Returns label -> file, float32 first."""
  files = {}
  for label, int8 in (('float32', False), ('blocks of 32', True)):
    to = folder / label
    request = exported.ExportRequest('onnx', int8=int8)
    folders.export(weights, to, request=request)
    files[label] = to / 'model.onnx'
  model = onnx.load(files['float32'])
  fixed = {part.name for part in model.graph.initializer}
  products = [
    node.name
    for node in model.graph.node
    if node.op_type == 'MatMul' and node.input[1] in fixed
  ]
  for label, per_channel in (('a tensor', False), ('a column', True)):
    files[label] = folder / f'{label}.onnx'
    quantization.quantize_dynamic(
      files['float32'],
      files[label],
      per_channel=per_channel,
      nodes_to_quantize=products,
      weight_type=quantization.QuantType.QInt8,
    )
  return files


class Embedder:
  """A file, and the tokenizer beside the first of all files."""

  def __init__(self, file: pathlib.Path, tokenizer: tokenizers.Tokenizer):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    self._session = onnxruntime.InferenceSession(str(file), options)
    self._names = [part.name for part in self._session.get_inputs()]
    self._tokenizer = tokenizer

  def embed(self, texts: list[str], size: int) -> np.ndarray:
    """Returns float32 [texts, D]."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = [np.zeros(0)] * len(texts)
    for start in range(0, len(texts), size):
      numbers = order[start : start + size]
      rows = self._tokenizer.encode_batch([texts[i] for i in numbers])
      ids = np.array([row.ids for row in rows])
      mask = np.array([row.attention_mask for row in rows])
      arrays = dict(zip(self._names, (ids, mask, 0 * ids), strict=False))
      (vectors,) = self._session.run(['sentence_embedding'], arrays)
      for i, vector in zip(numbers, vectors, strict=True):
        found[i] = vector / np.linalg.norm(vector)
    return np.stack(found)


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('weights')
  parser.add_argument('glue')
  arguments = parser.parse_args()
  logging.disable(logging.INFO)
  examples = inputs.read_sets(arguments.glue)['stsb']['dev']
  pairs = [example.texts for example in examples]
  scores = [example.label for example in examples]
  firsts, seconds = map(list, zip(*pairs, strict=True))
  with tempfile.TemporaryDirectory() as folder:
    files = write_files(arguments.weights, pathlib.Path(folder))
    whole = files['float32'].with_name('tokenizer.json')
    tokenizer = tokenizers.Tokenizer.from_file(str(whole))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(256)
    models = {label: Embedder(f, tokenizer) for label, f in files.items()}
    vectors = {
      label: [model.embed(part, BATCH) for part in (firsts, seconds)]
      for label, model in models.items()
    }
    rates, waits = {}, {}
    for _ in range(ROUNDS):
      for label, model in models.items():
        begun = time.perf_counter()
        model.embed(firsts, BATCH)
        middle = time.perf_counter()
        model.embed(firsts[:SINGLE], 1)
        end = time.perf_counter()
        rate = len(firsts) / (middle - begun)
        rates[label] = max(rate, rates.get(label, 0))
        wait = (end - middle) / SINGLE * 1e3
        waits[label] = min(wait, waits.get(label, wait))
    print('bits                least  mean    Spearman  texts/s  ms    MB')
    for label, found in vectors.items():
      cosines = np.concatenate(
        [
          np.sum(one * other, axis=1)
          for one, other in zip(found, vectors['float32'], strict=True)
        ]
      )
      similar = np.sum(found[0] * found[1], axis=1)
      correlation = scipy.stats.spearmanr(similar, scores).statistic
      print(
        f'{label:18}  {cosines.min():.4f} {cosines.mean():.4f}'
        f'  {100 * correlation:8.2f}  {rates[label]:7.0f}'
        f'  {waits[label]:4.1f}  {files[label].stat().st_size / 1e6:5.1f}'
      )


if __name__ == '__main__':
  sys.exit(main())
