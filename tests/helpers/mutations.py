"""Files that are changed at random, and the readers that they are given to.

  python tests/helpers/mutations.py FOLDER NAME [--count 2000] [--seed 0]

Each reader's `write` makes FOLDER/NAME. Each changed file is read by itself, in
a process with 500 MiB of memory to take: prints as JSON how many opened, were
refused in words of ours, and did anything else.
"""

import argparse
import collections
import importlib
import io
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from etils import epath

MEMORY = 500 << 20
SECONDS = 2  # of the processor
OURS = (ValueError, OSError, FileNotFoundError)
INTERESTING = (0, 1, 2, 7, 64, 127, 128, 255, 256, 1 << 15, 1 << 16, 1 << 20)
INTERESTING += (1 << 28, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40)
INTERESTING += ((1 << 63) - 1, 1 << 63, (1 << 64) - 1)
# In place of a word of a text.
WORDS = (
  '0',
  '-1',
  '1e999',
  'NaN',
  '-Infinity',
  '9' * 30,
  '9' * 5000,
  '1.5',
  'null',
  'true',
  '[]',
  '{}',
  '""',
  '"x"',
  '"\\ud800"',
  '"\\u0000"',
  '\\',
  '[' * 20_000,
  '{"x":' * 5_000,
  '[' * 500 + ']' * 500,
  '\n',
  '\0',
  ' ',
  '..',
  '/',
  'é',
  '\ufeff',
  '[[1]]',
  '{"x": {"x": []}}',
  '"a b"',
  '<unk>',
)


class Reader(NamedTuple):
  """A reader and the files that it reads.

  Attributes:
    write: makes files in a folder; their names do not matter.
    read: reads all that a folder below it holds, the one with the changed file.
    unpack: a file's bytes -> what is changed of them, every other time.
    pack: (a file's bytes, what that changed to) -> bytes with right checksums.
  """

  write: Callable[[pathlib.Path], None]
  read: Callable[[epath.Path], None]
  unpack: Callable[[bytes], bytes] = lambda content: content
  pack: Callable[[bytes, bytes], bytes] = lambda content, changed: changed


# --- What they read


def _state(torch):
  model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Embedding(4, 3))
  state = model.state_dict()
  state['half'] = torch.ones(2, 2).bfloat16().t()
  return state


def _write_archive(folder):
  import torch

  torch.save(_state(torch), folder / 'pytorch_model.bin')


def _write_old(folder):
  import torch

  file = folder / 'pytorch_model.bin'
  torch.save(_state(torch), file, _use_new_zipfile_serialization=False)


def _unpack_pickle(content):
  with zipfile.ZipFile(io.BytesIO(content)) as archive:
    return archive.read('pytorch_model/data.pkl')


def _pack_pickle(content, changed):
  memory = io.BytesIO()
  with zipfile.ZipFile(io.BytesIO(content)) as archive:
    with zipfile.ZipFile(memory, 'w') as written:
      for name in archive.namelist():
        pickled = name.endswith('/data.pkl')
        written.writestr(name, changed if pickled else archive.read(name))
  return memory.getvalue()


def _write_hdf5(folder):
  import h5py

  with h5py.File(folder / 'weights.hdf5', 'w') as file:
    file['CNN/W_cnn_0'] = np.ones((1, 2, 3, 4), np.float32)
    file['RNN_0/RNN/B'] = np.ones(5, np.float32)
    file.create_dataset('packed', data=np.zeros(9, 'f4'), compression='gzip')


def _write_safetensors(folder):
  import safetensors.numpy

  file = folder / 'model-00001-of-00001.safetensors'
  arrays = {'a.weight': np.ones((2, 3), np.float32), 'b': np.zeros(4, 'f2')}
  safetensors.numpy.save_file(arrays, file)
  index = {'weight_map': dict.fromkeys(('a.weight', 'b'), file.name)}
  (folder / 'model.safetensors.index.json').write_text(json.dumps(index))


def _write_tensorflow(folder):
  import tensorflow as tf

  arrays = {
    'bert/embeddings/word_embeddings': np.ones((4, 3), np.float32),
    'bert/pooler/dense/bias': np.zeros(3, np.float32),
    'global_step': np.int64(7),
  }
  tf.raw_ops.SaveV2(
    prefix=str(folder / 'model.ckpt'),
    tensor_names=list(arrays),
    shape_and_slices=[''] * len(arrays),
    tensors=[tf.constant(array) for array in arrays.values()],
  )


def _write_npy(folder):
  for i in range(10):
    np.save(folder / f'params_{i}.npy', np.full(3, i, np.float32))


def _write_vocabularies(folder):
  from tokenizers import AddedToken

  from data.vocabulary import (
    bpe,
    bpe_training,
    byte_bpe,
    encoder_byte_bpe,
    tokenization,
    tokenizer_export,
    tokenizer_json,
  )

  texts = ['the cat sat on the mat, the mat sat'] * 3
  trained = bpe_training.train_bpe(texts, 60)
  wordpiece, words = (
    tokenization.train(texts, tokenization.parse_training(f'train:{kind}:60'))
    for kind in ('wordpiece', 'words')
  )
  byte_level = byte_bpe.make_byte_bpe(
    [*byte_bpe.byte_letters(), byte_bpe.END_OF_TEXT, 'th'], (('t', 'h'),)
  )
  gpt = bpe.make_bpe(trained.pieces[:-3], trained.merges, bpe.BASIC)
  encoders = [
    encoder_byte_bpe.make(
      kind,
      [*byte_bpe.byte_letters(), 'th', *tokenizer_json.SYMBOLS[kind], '[E]'],
      (('t', 'h'),),
      [AddedToken('[E]')],
    )
    for kind in tokenizer_json.ENCODERS
  ]
  for tokenizer in (wordpiece, byte_level, gpt, words, *encoders):
    name = getattr(tokenizer, 'kind', type(tokenizer).__name__)
    tokenizer.save(folder / name)
    if tokenizer is not words:
      tokenizer_export.export(
        tokenizer, folder / f'{name}-export', max_length=9
      )
  old = folder / 'old'
  old.mkdir()
  wordpiece.save_vocabulary(epath.Path(old))
  new = wordpiece.vocab_size
  (old / 'added_tokens.json').write_text(json.dumps({'[E]': new}))
  (old / 'special_tokens_map.json').write_text('{"additional": ["[E]"]}')


def _write_labelled(folder):
  """A folder for each kind of own task, named after it."""
  files = {
    'classification': (
      'train.csv',
      'text,label\n"He said ""no"".",a\nYes.,b\n',
    ),
    'regression': (
      'train.jsonl',
      '{"text": "A.", "label": 1}\n{"text": "B.", "label": 2.5}\n',
    ),
    'choice': (
      'train.jsonl',
      '{"context": "A.", "choices": ["b", "c"], "label": 1, "id": "x"}\n',
    ),
    'tagging': ('train.txt', 'Ann\tB-PER\nran\tO\n\nIn\tO\nOslo\tS-LOC\n'),
    'span': (
      'train.json',
      '{"data": [{"paragraphs": [{"context": "Ann ran.", "qas": [{"id": "1",'
      ' "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}'
      ']}]}]}]}',
    ),
    'coreference': (
      'train.conll',
      '#begin document (bc/x); part 000\n'
      + ''.join(
        f'bc/x 0 {i} {word} NN * - - - me * {column}\n'
        for i, (word, column) in enumerate(
          [('Ann', '(1)'), ('saw', '-'), ('her', '(1)|(2'), ('hat', '2)')]
        )
      )
      + '\n#end document\n',
    ),
  }
  for kind, (name, text) in files.items():
    (folder / kind).mkdir()
    (folder / kind / name).write_text(text)


def _write_vectors(folder):
  for name, begin in (('plain', b''), ('counted', b'3 4\n')):
    rows = b'the 1 2 3 4\ncat 0.5 -2 1e-3 4\n, 1 1 1 1\n'
    (folder / name).mkdir()
    (folder / name / 'vectors.txt').write_bytes(begin + rows)
  (folder / 'binary').mkdir()
  rows = [b'%s ' % w + np.ones(4, '<f4').tobytes() for w in (b'the', b'cat')]
  binary = b'2 4\n' + b'\n'.join(rows) + b'\n'
  (folder / 'binary/vectors.txt').write_bytes(binary)


def _write_arpa(folder):
  (folder / 'x.arpa').write_text(
    '\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-99\t<s>\t-0.3\n'
    '-0.5\tb\n-0.6\t</s>\n-0.4\ta\t-0.2\n\n\\2-grams:\n-0.1\ta b\n'
    '-0.3\t<s> a\n\n\\end\\\n'
  )


def _write_flax(folder):
  from flax import serialization

  arrays = {'a': {'kernel': np.arange(6.0).reshape(2, 3)}, 'b': np.ones(40)}
  content = serialization.to_bytes(arrays)
  (folder / 'flax_model.msgpack').write_bytes(content)


def _write_tables(folder):
  """Parquet, arrow in both forms, CSV, and a folder of `save_to_disk`."""
  import pyarrow as pa
  from pyarrow import feather, parquet

  texts = [f'text {i}' for i in range(20)]
  table = pa.table({'text': texts, 'label': ['a', 'b'] * 10})
  for name in ('parquet', 'feather', 'arrow', 'csv', 'saved'):
    (folder / name).mkdir()
  parquet.write_table(table, folder / 'parquet/train.parquet')
  feather.write_feather(
    table, folder / 'feather/train.feather', compression='uncompressed'
  )
  numbers = pa.table({'text': texts, 'label': [0, 1] * 10})
  for file, rows in (
    ('arrow/train.arrow', table),
    ('saved/data.arrow', numbers),
  ):
    with pa.ipc.new_stream(folder / file, rows.schema) as writer:
      writer.write_table(rows)
  rows = ''.join(f'"{text}",{i}\n' for i, text in enumerate(texts))
  (folder / 'csv/train.csv').write_text(f'text,label\n{rows}')
  state = {'_data_files': [{'filename': 'data.arrow'}], '_split': 'train'}
  (folder / 'saved/state.json').write_text(json.dumps(state))
  names = {'names': ['a', 'b'], '_type': 'ClassLabel'}
  info = {'features': {'text': {'dtype': 'string'}, 'label': names}}
  (folder / 'saved/dataset_info.json').write_text(json.dumps(info))


TYPES = 'sentence_transformers.models.'


def _write_modules(folder):
  kinds = ('Transformer', 'Pooling', 'Normalize')
  modules = [
    {'idx': i, 'path': f'{i}_{kind}' * (i > 0), 'type': f'{TYPES}{kind}'}
    for i, kind in enumerate(kinds)
  ]
  (folder / 'modules.json').write_text(json.dumps(modules))
  (folder / '1_Pooling').mkdir()
  settings = {'pooling_mode_cls_token': True, 'pooling_mode_max_tokens': False}
  (folder / '1_Pooling/config.json').write_text(json.dumps(settings))
  settings = {'max_seq_length': 16, 'do_lower_case': True}
  (folder / 'sentence_bert_config.json').write_text(json.dumps(settings))
  settings = {'prompts': {'a': 'b: ', 'c': None}, 'default_prompt_name': 'a'}
  file = folder / 'config_sentence_transformers.json'
  file.write_text(json.dumps(settings))


# --- The readers


def _read_all(entries):
  for entry in entries.values():
    array = entry.read()
    assert (array.shape, array.dtype) == (entry.shape, entry.dtype)


def _read_pickle(folder):
  from models.pretrained import torch_pickle

  _read_all(torch_pickle.entries(folder / 'pytorch_model.bin'))


def _read_hdf5(folder):
  from models.pretrained import hdf5_file

  _read_all(hdf5_file.entries(folder / 'weights.hdf5'))


def _read_hugging_face(folder):
  from models.pretrained import weight_files

  _read_all(weight_files.from_hugging_face(folder))


def _read_tensorflow(folder):
  from models.pretrained import tensorflow_file

  entries = tensorflow_file.entries(tensorflow_file.index_of(folder))
  _read_all({n: e for n, e in entries.items() if e.dtype.kind in 'fiub'})


def _read_npy(folder):
  from models.pretrained import gpt_release

  _read_all(gpt_release.entries(folder, {'a': (5, 2), 'b': (20,)}))


def _read_vocabulary(folder):
  from data.vocabulary import bpe, tokenization

  tokenizer = tokenization.load(folder)
  if not isinstance(tokenizer, bpe.BPE):  # whose words spaCy may find
    tokenizer.encode_batch(['the cat [E] mat'])


def _read_labelled(folder):
  from data.scoring import kinds
  from data.tasks import registry

  (file,) = folder.iterdir()
  task = kinds.own_task(
    kind=folder.name, train=str(file), dev=str(file), text=('text',)
  )
  registry.load(task, '', 'dev')


def _read_tables(folder):
  """Reads labelled rows, and the text of a store."""
  from data.scoring import kinds
  from data.tasks import registry
  from data.text import sources

  path = folder
  if not (folder / 'state.json').exists():
    (path,) = folder.iterdir()
  task = kinds.own_task(
    kind='classification', train=str(path), dev=str(path), text=('text',)
  )
  registry.load(task, '', 'dev')
  for _ in sources.open_source(str(path)).pieces('ignored'):
    pass


def _read_vectors(folder):
  from data.vocabulary import word_vectors

  word_vectors.read(folder / 'vectors.txt', ('the', 'cat', ','))


def _read_arpa(folder):
  from data.ngrams import arpa

  arpa.read(folder / 'x.arpa')


def _read_modules(folder):
  from models.pretrained import sentence_modules
  from models.pretrained.weights import Weights

  folder = folder.parent if folder.name == '1_Pooling' else folder
  problems = sentence_modules.add_form(
    Weights(folder, 'Hugging Face', 'bert')
  ).problems
  if problems:
    raise ValueError(f'{folder}/1_Pooling: {problems}')


# --- Checksums of TensorFlow's index, without which nothing is looked at


def _crc32c(content):
  """Masked as LevelDB's tables have it."""
  crc = 0xFFFFFFFF
  for byte in content:
    crc = _CRC_TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
  crc ^= 0xFFFFFFFF
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_table():
  for i in range(256):
    for _ in range(8):
      i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
    yield i


_CRC_TABLE = tuple(_crc_table())


def _varint(content, place):
  value = shift = 0
  while True:
    byte = content[place]
    value |= (byte & 127) << shift
    place, shift = place + 1, shift + 7
    if byte < 128:
      return value, place


def pack_index(content, changed):
  """The changed one with right sums, of the first's length and blocks."""
  if not content.endswith(struct.pack('<Q', 0xDB4775248B80FB57)):
    return changed
  changed = bytearray((changed + content[len(changed) :])[: len(content)])
  place, ends = len(content) - 48, []
  changed[place:] = content[place:]
  for _ in range(2):
    begin, place = _varint(content, place)
    size, place = _varint(content, place)
    ends.append((begin, begin + size + 1))
  for begin, end in [(0, ends[0][0] - 4), *ends]:
    changed[end : end + 4] = struct.pack('<I', _crc32c(changed[begin:end]))
  return bytes(changed)


READERS = {
  'archive': Reader(_write_archive, _read_pickle, _unpack_pickle, _pack_pickle),
  'pickle': Reader(_write_old, _read_pickle),
  'hdf5': Reader(_write_hdf5, _read_hdf5),
  'safetensors': Reader(_write_safetensors, _read_hugging_face),
  'tensorflow': Reader(_write_tensorflow, _read_tensorflow, pack=pack_index),
  'npy': Reader(_write_npy, _read_npy),
  'vocabularies': Reader(_write_vocabularies, _read_vocabulary),
  'labelled': Reader(_write_labelled, _read_labelled),
  'tables': Reader(_write_tables, _read_tables),
  'vectors': Reader(_write_vectors, _read_vectors),
  'arpa': Reader(_write_arpa, _read_arpa),
  'flax': Reader(_write_flax, _read_hugging_face),
  'modules': Reader(_write_modules, _read_modules),
}


# --- Changes


def mutate(content: bytes, rng: random.Random) -> bytes:
  """Returns the bytes with one change or a few."""
  for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
    content = rng.choice(CHANGES)(content or b'\0', rng)[:100_000]
  return content


def _part(content, rng):
  begin = rng.randrange(len(content))
  return begin, min(begin + rng.choice((1, 2, 4, 8, 50)), len(content))


def _flip(content, rng):
  place = rng.randrange(len(content))
  bit = bytes([content[place] ^ 1 << rng.randrange(8)])
  return content[:place] + bit + content[place + 1 :]


def _inflate(content, rng):
  """A length or a number of 1 to 8 bytes becomes another."""
  place, size = rng.randrange(len(content)), rng.choice((1, 2, 4, 8))
  number = (rng.choice(INTERESTING) + rng.choice((0, 0, -1))) % (1 << 8 * size)
  number = number.to_bytes(size, rng.choice(('little', 'big')))
  return content[:place] + number + content[place + size :]


def _truncate(content, rng):
  return content[: rng.randrange(len(content))]


def _remove(content, rng):
  begin, end = _part(content, rng)
  return content[:begin] + content[end:]


def _repeat(content, rng):
  begin, end = _part(content, rng)
  times = rng.choice((1, 1, 2, 100))
  return content[:end] + content[begin:end] * times + content[end:]


def _splice(content, rng):
  begin, end = _part(content, rng)
  place = rng.randrange(len(content))
  return content[:place] + content[begin:end] + content[place + end - begin :]


def _reword(content, rng):
  """A word, a string, a number or a mark of a text becomes another."""
  found = list(re.finditer(rb'"[^"]*"|[\w.]+|[\[\]{}:,]', content))
  if not found:
    return _flip(content, rng)
  match, word = rng.choice(found), rng.choice(WORDS)
  if rng.random() < 0.3:
    word = rng.choice(found)[0].decode('latin-1')
  return (
    content[: match.start()]
    + word.encode('utf-8' if rng.random() < 0.9 else 'utf-16')
    + content[match.end() :]
  )


CHANGES = (_flip, _inflate, _truncate, _remove, _repeat, _splice, _reword)


# --- The run


def changed_file(name, folder, seed, i):
  """Returns the i-th file of a run: its path and its new content."""
  rng = random.Random(f'{name} {seed} {i}')
  files = sorted(path for path in folder.rglob('*') if path.is_file())
  file = rng.choice(files)
  reader, content = READERS[name], file.read_bytes()
  if rng.random() < 0.5:
    return file, mutate(content, rng)
  return file, reader.pack(content, mutate(reader.unpack(content), rng))


def _try(name, folder, work, seed, i):
  """Returns what a reader does with a file, in a word or more."""
  original, content = changed_file(name, folder, seed, i)
  file = work / original.relative_to(folder)
  file.write_bytes(content)
  signal.setitimer(signal.ITIMER_PROF, SECONDS)
  try:
    READERS[name].read(epath.Path(file.parent))
    return 'opened'
  except OURS as error:
    ours = type(error) in OURS or type(error).__module__.startswith('data.')
    if ours and str(file.parent) in str(error):
      return 'refused'
    return ''.join(traceback.format_exception(error))
  except BaseException as error:
    return ''.join(traceback.format_exception(error))
  finally:
    signal.setitimer(signal.ITIMER_PROF, 0)
    shutil.copy(original, file)


def _child(name, folder, work, seed, begin, count, out):
  """Tries files, each of which is told of before the next one."""
  shutil.copytree(folder, work)
  for sub in {path.parent for path in work.rglob('*') if path.is_file()}:
    READERS[name].read(epath.Path(sub))  # as they are, all are read
  size = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
  size *= resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
  resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
  for i in range(begin, count):
    out.write(json.dumps([i, _try(name, folder, work, seed, i)]) + '\n')
    out.flush()


def _fork(call, *arguments):
  """Returns the status of a process that makes a call and ends."""
  pid = os.fork()
  if not pid:
    try:
      call(*arguments)
      os._exit(0)
    except BaseException:
      traceback.print_exc()
    finally:
      os._exit(1)
  return os.waitpid(pid, 0)[1]


def _write(names, folder):
  for name in names:
    (folder / name).mkdir()
    READERS[name].write(folder / name)


def run(name, folder, count, seed):
  """Returns how often a reader did what, and each thing it should not do."""
  counts, others, begin = collections.Counter(), [], 0
  while begin < count:
    with (
      tempfile.TemporaryFile('w+') as out,
      tempfile.TemporaryDirectory() as work,
    ):
      work = pathlib.Path(work) / 'files'
      status = _fork(_child, name, folder, work, seed, begin, count, out)
      out.seek(0)
      told = [json.loads(line) for line in out]
    for i, what in told:
      counts[what if what in ('opened', 'refused') else 'other'] += 1
      if what not in ('opened', 'refused'):
        others.append((i, what))
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
      raise RuntimeError(f'{name}: the reader of files as they are fails')
    begin += len(told)
    if os.WIFSIGNALED(status):
      others.append((begin, signal.Signals(os.WTERMSIG(status)).name))
      counts['other'] += 1
      begin += 1
  return {'name': name, **counts, 'others': others[:20]}


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('names', nargs='+')
  parser.add_argument('--count', type=int, default=2000)
  parser.add_argument('--seed', type=int, default=0)
  args = parser.parse_args()
  # Once for all: each process of a reader is a fork of this one.
  importlib.import_module('data.vocabulary.tokenization')
  importlib.import_module('models.pretrained.weight_files')
  importlib.import_module('data.scoring.kinds')
  importlib.import_module('data.ngrams.arpa')
  for name in ('gpt_release', 'hdf5_file', 'tensorflow_file', 'torch_pickle'):
    importlib.import_module(f'models.pretrained.{name}')
  if 'tensorflow' in args.names:
    importlib.import_module('tensorflow')
  # TensorFlow's threads, and PyTorch, are no concern of readers.
  if _fork(_write, args.names, args.folder):
    raise RuntimeError('the files cannot be written')
  for name in args.names:
    report = run(name, args.folder / name, args.count, args.seed)
    print(json.dumps(report), flush=True)


if __name__ == '__main__':
  main()
