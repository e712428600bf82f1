"""Benches of models: steps, decoding and embedding beside other programs'.

`train.bench` is the command that runs them.
"""

import re
from typing import Any

from etils import epath

from data.text import text_files
from train.benches import (
  elmo_rivals,
  text_rivals,
  timing,
  torch_rivals,
  tuning_rivals,
)
from train.benches import ours as benches_ours
from train.host import huge_pages


def bench_step() -> dict[str, Any]:
  """BERT-Base step, 8 x 128, float32, beside Hugging Face on PyTorch."""
  shape = dict(batch=8, length=128, vocab_size=30_522)
  results: dict[str, Any] = {}
  for label, dropout in (('dropout', 0.1), ('no_dropout', 0.0)):
    ours = dict(
      size='bert-base',
      scan_layers=False,
      dropout_rate=dropout,
      attention_dropout_rate=dropout,
      **shape,
    )
    theirs = dict(size='bert-base', dropout=dropout, **shape)
    times = timing.rival_times(
      {
        'ours': timing.Rival(benches_ours.our_step, ours, huge_pages.VALUE),
        'hugging_face': timing.Rival(torch_rivals.their_step, theirs),
      }
    )
    for name, (seconds, _) in times.items():
      results[f'{label}_{name}_seconds'] = seconds
    seconds, flops = times['ours']
    results[f'{label}_speed_ratio'] = times['hugging_face'].seconds / seconds
    results[f'{label}_ours_model_gflop_per_second'] = flops / seconds / 1e9
  return results | _product_rates()


def _product_rates() -> dict[str, float]:
  """Returns GFLOP/s of both libraries' float32 matrix products."""
  times = timing.rival_times(
    {
      'jax': timing.Rival(benches_ours.jax_products, {}),
      'torch': timing.Rival(torch_rivals.torch_products, {}),
    }
  )
  return {
    f'{name}_matmul_gflop_per_second': flops / seconds / 1e9
    for name, (seconds, flops) in times.items()
  }


def bench_gpt2_step() -> dict[str, Any]:
  """GPT-2 step, 124 M, beside Hugging Face on PyTorch.

  4 x 256 in float32 on a CPU, 16 x 1024 in bfloat16 on an accelerator.
  """
  import jax

  from train.host import device

  accelerator = jax.default_backend() != 'cpu'
  batch, length = (16, 1024) if accelerator else (4, 256)
  shape = dict(size='gpt2', batch=batch, length=length)
  ours = shape | dict(
    vocab_size=50_257,
    scan_layers=accelerator,
    dtype='bfloat16' if accelerator else 'float32',
    dropout_rate=0.1,
    attention_dropout_rate=0.1,
  )
  times = timing.rival_times(
    {
      'ours': timing.Rival(benches_ours.our_step, ours, huge_pages.VALUE),
      'hugging_face': timing.Rival(
        torch_rivals.their_gpt2_step,
        shape | {'dropout': 0.1, 'accelerator': accelerator},
      ),
    },
    repeats=20 if accelerator else timing.REPEATS,
  )
  results: dict[str, Any] = {
    f'{name}_seconds': seconds for name, (seconds, _) in times.items()
  }
  seconds, flops = times['ours']
  results['speed_ratio'] = times['hugging_face'].seconds / seconds
  results['ours_model_gflop_per_second'] = flops / seconds / 1e9
  if not accelerator:
    return results | _product_rates()
  peak = device.peak_tflops()
  for name, (seconds, _) in times.items():
    results[f'{name}_tokens_per_second'] = batch * length / seconds
    results[f'{name}_mfu'] = device.model_flops_utilisation(
      flops, seconds, peak, 1
    )
  return results


def bench_decoding() -> dict[str, Any]:
  """Greedy decoding by GPT-2, 124 M, beside Hugging Face's generate."""
  import jax

  accelerator = jax.default_backend() != 'cpu'
  results: dict[str, Any] = {}
  new_tokens = 128
  for batch in (1, 8, 64) if accelerator else (1, 8):
    options = dict(size='gpt2', batch=batch, new_tokens=new_tokens)
    dtype = 'bfloat16' if accelerator else 'float32'
    times = timing.rival_times(
      {
        'ours': timing.Rival(
          benches_ours.our_decoding,
          options | {'dtype': dtype},
          huge_pages.VALUE,
        ),
        'hugging_face': timing.Rival(
          torch_rivals.their_decoding, options | {'accelerator': accelerator}
        ),
      }
    )
    for name, (seconds, _) in times.items():
      rate = batch * new_tokens / seconds
      results[f'batch_{batch}_{name}_tokens_per_second'] = rate
    results[f'batch_{batch}_speed_ratio'] = (
      times['hugging_face'].seconds / times['ours'].seconds
    )
  return results | ({} if accelerator else _product_rates())


def bench_accelerator() -> dict[str, Any]:
  """BERT-Base and Large in bfloat16, beside Hugging Face on the same card."""
  import jax

  from train.host import device

  if jax.default_backend() == 'cpu':
    raise ValueError('accelerator: JAX sees only the CPU')
  peak = device.peak_tflops()
  results: dict[str, Any] = {}
  for size, length, batch in (
    ('bert-base', 128, 256),
    ('bert-base', 512, 64),
    ('bert-large', 128, 128),
    ('bert-large', 512, 32),
  ):
    shape = dict(size=size, batch=batch, length=length, vocab_size=30_522)
    options = shape | {'dtype': 'bfloat16'}
    timed = {
      'ours': timing.Rival(benches_ours.our_step, options, huge_pages.VALUE)
    }
    if jax.default_backend() == 'gpu':
      options = shape | {'dropout': 0.1, 'accelerator': True}
      timed['hugging_face'] = timing.Rival(torch_rivals.their_step, options)
    times = timing.rival_times(timed, repeats=20)
    for name, (seconds, _) in times.items():
      label = f'{size}_{length}_{name}'
      results[f'{label}_tokens_per_second'] = batch * length / seconds
      results[f'{label}_mfu'] = device.model_flops_utilisation(
        times['ours'].flops, seconds, peak, 1
      )
  return results


def bench_elmo_step() -> dict[str, Any]:
  """ELMo step of the original, 8 x 20 words a tower, float32, and PyTorch's."""
  shape = dict(batch=8, length=20, num_words=100_000, num_samples=8192)
  times = timing.rival_times(
    {
      'ours': timing.Rival(elmo_rivals.our_elmo_step, shape, huge_pages.VALUE),
      'pytorch': timing.Rival(elmo_rivals.their_elmo_step, shape),
    }
  )
  results: dict[str, Any] = {}
  words = elmo_rivals.NUM_TOWERS * shape['batch'] * shape['length']
  for name, (seconds, _) in times.items():
    results[f'{name}_seconds'] = seconds
    results[f'{name}_words_per_second'] = words / seconds
  seconds, flops = times['ours']
  results['speed_ratio'] = times['pytorch'].seconds / seconds
  results['ours_model_gflop_per_second'] = flops / seconds / 1e9
  return results | _product_rates()


def bench_elmo_embedding(trees: str, count: int | None) -> dict[str, Any]:
  """Sentences that the original ELMo embeds, ours and PyTorch's.

  Args:
    trees: a folder, see `read_tree_words`.
    count: as there.
  """
  sentences = read_tree_words(trees, count)
  num_words = sum(map(len, sentences))
  options = dict(sentences=sentences)
  times = timing.rival_times(
    {
      'ours': timing.Rival(
        elmo_rivals.our_elmo_embedding, options, huge_pages.VALUE
      ),
      'pytorch': timing.Rival(elmo_rivals.their_elmo_embedding, options),
    },
    repeats=3,
    warm_ups=1,
  )
  results: dict[str, Any] = {'sentences': len(sentences), 'words': num_words}
  for name, (seconds, _) in times.items():
    results[f'{name}_sentences_per_second'] = len(sentences) / seconds
    results[f'{name}_words_per_second'] = num_words / seconds
  results['speed_ratio'] = times['pytorch'].seconds / times['ours'].seconds
  return results | _product_rates()


def bench_embedding(
  trees: str, count: int | None, weights: str
) -> dict[str, Any]:
  """Vectors of sentences by a BERT, ours and Hugging Face's on PyTorch.

  Theirs in our batches, and in batches of 32 in the order of the file. In
  float32 on a CPU, bfloat16 on an accelerator.

  Args:
    trees: a folder, see `read_tree_words`.
    count: as there.
    weights: a folder of a BERT as Hugging Face publishes it.
  """
  import jax

  accelerator = jax.default_backend() != 'cpu'
  sentences = [' '.join(words) for words in read_tree_words(trees, count)]
  options = dict(weights=weights, sentences=sentences)
  dtype = 'bfloat16' if accelerator else 'float32'
  theirs = options | {'accelerator': accelerator}
  times = timing.rival_times(
    {
      'ours': timing.Rival(
        text_rivals.our_embedding, options | {'dtype': dtype}, huge_pages.VALUE
      ),
      'equal_padding': timing.Rival(
        text_rivals.their_embedding, theirs | {'equal_padding': True}
      ),
      'plain_loop': timing.Rival(
        text_rivals.their_embedding, theirs | {'equal_padding': False}
      ),
    },
    repeats=20 if accelerator else 3,
    warm_ups=1,
  )
  results: dict[str, Any] = {'sentences': len(sentences)}
  for name, (seconds, _) in times.items():
    results[f'{name}_sentences_per_second'] = len(sentences) / seconds
  for name in ('equal_padding', 'plain_loop'):
    results[f'{name}_speed_ratio'] = times[name].seconds / times['ours'].seconds
  return results | ({} if accelerator else _product_rates())


TUNED_EXAMPLES = 1_280  # 40 steps of 32


def bench_finetune(data: str, weights: str) -> dict[str, Any]:
  """Fine-tuning on MRPC, ours and Hugging Face's Trainer, in examples/s.

  The same examples once, in batches of 32: ours of like lengths; Trainer's in
  an order by chance, each padded to its longest (`dynamic`) or to 128 tokens
  (`padded`), and of like lengths, padded to its longest (`grouped`).

  Args:
    data: folder of the labelled sets.
    weights: a folder of a BERT as Hugging Face publishes it.
  """
  options = dict(
    task='mrpc', data=data, weights=weights, num_examples=TUNED_EXAMPLES
  )
  timed = {
    'ours': timing.Rival(tuning_rivals.our_epoch, options, huge_pages.VALUE)
  }
  for name, sampling, padded in (
    ('dynamic', 'random', False),
    ('padded', 'random', True),
    ('grouped', 'group_by_length', False),
  ):
    theirs = options | {'sampling': sampling, 'padded': padded}
    timed[name] = timing.Rival(tuning_rivals.their_epoch, theirs)
  times = timing.rival_times(timed, repeats=3, warm_ups=1)
  results: dict[str, Any] = {'examples': TUNED_EXAMPLES}
  for name, (seconds, _) in times.items():
    results[f'{name}_examples_per_second'] = TUNED_EXAMPLES / seconds
  for name in ('dynamic', 'padded', 'grouped'):
    results[f'{name}_speed_ratio'] = times[name].seconds / times['ours'].seconds
  return results | _product_rates()


# A leaf of a tree, its label before its word: '(2 movie)'.
_LEAF = re.compile(r'\(\d ([^() ]+)\)')


def read_tree_words(folder: str, count: int | None = None) -> list[list[str]]:
  """Reads the sentences of the Stanford sentiment trees' test set.

  Args:
    folder: holds `test.txt`, UTF-8, a tree in brackets a line.
    count: how many, evenly spread over the file; None: all.

  Returns:
    The words of each sentence, the leaves of its tree.

  Raises:
    FileNotFoundError: if there is no such file.
    ValueError: if a line is no tree, or there are fewer sentences.
  """
  path = epath.Path(folder) / 'test.txt'
  if not path.is_file():
    raise FileNotFoundError(
      f'there is no {path}, expected a folder of Stanford sentiment trees with'
      ' their test.txt'
    )
  sentences = []
  for number, line in enumerate(text_files.lines(text_files.chunks(path)), 1):
    words = _LEAF.findall(line)
    # Every inner node has two children.
    nodes = 2 * len(words) - 1
    if not words or not line.count('(') == line.count(')') == nodes:
      raise ValueError(
        f'{path}, line {number}: found {line[:50]!r}, expected a binary tree'
        " such as '(3 (4 Fun) (2 .))'"
      )
    sentences.append(words)
  if count is None:
    return sentences
  if not 0 < count <= len(sentences):
    raise ValueError(
      f'{count} sentences were asked for, expected 1 to the {len(sentences)} of'
      f' {path}'
    )
  return [sentences[i * len(sentences) // count] for i in range(count)]
