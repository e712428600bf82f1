"""The benches by name, and the functions that time our programs."""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
from etils import epath

from data.tasks.examples import evenly
from data.text import text_files
from train.benches import cloud, host, inference, programs
from train.benches.options import OF_BENCHES
from train.benches.timing import REPEATS, Programs, compare, step_times
from train.host import console

UNITS = ('piece', 'word', 'stored')
# Configs of 2018's recipes -> of the modern ones of the same size.
RECIPES = {
  'ablation:bert,2018': 'ablation:bert,modern',
  'bert_mini': 'bert_mini:modern',
  'gpt_mini': 'gpt_mini:modern',
}


class Bench(NamedTuple):
  """A bench: `run` takes its options and returns figures by name.

  If `timed`, it times our program in turns with rivals, which `run` takes too.
  """

  run: Callable[..., dict[str, float]]
  timed: bool = False


def run(
  names: Sequence[str],
  options: Mapping[str, str | int | None],
  rivals: Mapping[str, Programs],
) -> dict[str, dict[str, float]]:
  """Runs benches, prints their figures and returns them by bench.

  `options` has every option, None where it is not given. `rivals` are programs
  to time beside ours, by bench; 'products' beside our bare matrix products,
  which follow each timed bench on a CPU.
  """
  results = {}
  for name in names:
    bench = BENCHES[name]
    given = {option: options[option] for option in OF_BENCHES[name]}
    if bench.timed:
      given['rivals'] = rivals.get(name, {})
    results[name] = bench.run(**given)
    if bench.timed and not on_accelerator():
      products = {'jax': (programs.products, {}), **rivals.get('products', {})}
      for library, (seconds, flops) in step_times(products).items():
        figure = f'{library}_matmul_gflop_per_second'
        results[name][figure] = flops / seconds / 1e9
    rows = [(key, f'{value:,.4g}') for key, value in results[name].items()]
    console.table(rows, name)
  return results


def on_accelerator() -> bool:
  """Whether JAX sees more than the CPU."""
  return jax.default_backend() != 'cpu'


# Bench -> (beginning of the figures' names, size, rows, tokens, dropout rate).
_STEPS = {
  'step': (
    ('dropout_', 'bert-base', 8, 128, 0.1),
    ('no_dropout_', 'bert-base', 8, 128, 0.0),
  ),
  'gpt2_step': (('', 'gpt2', 4, 256, 0.1),),
  'gpt2_step on an accelerator': (('', 'gpt2', 16, 1024, 0.1),),
  'accelerator': (
    ('bert-base_128_', 'bert-base', 256, 128, 0.1),
    ('bert-base_512_', 'bert-base', 64, 512, 0.1),
    ('bert-large_128_', 'bert-large', 128, 128, 0.1),
    ('bert-large_512_', 'bert-large', 32, 512, 0.1),
    ('gpt2_1024_', 'gpt2', 8, 1024, 0.1),
  ),
}


def _steps(name: str, accelerator: bool, rivals: Programs) -> dict[str, float]:
  """Times training steps, in bfloat16 on an accelerator, else in float32."""
  figures = {}
  for label, size, batch, length, dropout in _STEPS[name]:
    options = dict(size=size, batch=batch, length=length, dropout=dropout)
    figures |= compare(
      programs.step,
      options | {'accelerator': accelerator},
      rivals,
      label=label,
      counts={'tokens': batch * length} if accelerator else None,
      repeats=20 if accelerator else REPEATS,
    )
  return figures


def _step(rivals: Programs) -> dict[str, float]:
  return _steps('step', False, rivals)


def _units() -> dict[str, float]:
  """Times steps that mask whole units, in turns with steps that mask pieces."""
  figures = {}
  for config, counting in itertools.product(
    ('bert_tiny', 'bert_mini'), ('exact', 'drawn')
  ):
    options = dict(config=config, batch=32, length=128, counting=counting)
    times = step_times(
      {unit: (programs.unit_step, options | {'unit': unit}) for unit in UNITS},
      repeats=30,
      ours=UNITS,
    )
    label = f'{config}_{counting}'
    figures[f'{label}_piece_seconds'] = times['piece'][0]
    for unit in ('word', 'stored'):
      ratio = times[unit][0] / times['piece'][0]
      figures[f'{label}_{unit}_of_piece'] = ratio
  return figures


def _recipes() -> dict[str, float]:
  """Times steps of the modern recipes, in turns with those of 2018's."""
  figures = {}
  for old, new in RECIPES.items():
    times = step_times(
      {name: (programs.recipe_step, {'config': name}) for name in (old, new)},
      repeats=30,
      ours=(old, new),
    )
    figures[f'{old}_seconds'] = times[old][0]
    figures[f'{new}_of_{old}'] = times[new][0] / times[old][0]
  return figures


def _gpt2_step(rivals: Programs) -> dict[str, float]:
  accelerator = on_accelerator()
  name = 'gpt2_step on an accelerator' if accelerator else 'gpt2_step'
  return _steps(name, accelerator, rivals)


def _accelerator(rivals: Programs) -> dict[str, float]:
  if not on_accelerator():
    raise ValueError('accelerator: JAX sees only the CPU')
  if jax.default_backend() != 'gpu':
    rivals = {}  # other people's programs run on CUDA
  return _steps('accelerator', True, rivals)


def _decoding(rivals: Programs) -> dict[str, float]:
  """Times greedy decoding of 128 tokens by GPT-2, 124 M."""
  figures, accelerator = {}, on_accelerator()
  options = dict(size='gpt2', new_tokens=128, accelerator=accelerator)
  for batch in (1, 8, 64) if accelerator else (1, 8):
    figures |= compare(
      programs.decoding,
      options | {'batch': batch},
      rivals,
      label=f'batch_{batch}_',
      counts={'tokens': batch * 128},
    )
  return figures


def _elmo_step(rivals: Programs) -> dict[str, float]:
  options = dict(batch=8, length=20, num_words=100_000, num_samples=8192)
  counts = {'words': 2 * 8 * 20}  # of both directions
  return compare(programs.elmo_step, options, rivals, counts=counts)


def _elmo_embedding(
  trees: str, sentences: int | None, rivals: Programs
) -> dict[str, float]:
  found = read_tree_words(trees, sentences)
  return compare(
    programs.elmo_embedding,
    {'sentences': found},
    rivals,
    counts={'sentences': len(found), 'words': sum(map(len, found))},
    repeats=3,
    slow=True,
  )


def _embedding(
  trees: str, weights: str, sentences: int | None, rivals: Programs
) -> dict[str, float]:
  """Times sentence vectors by a BERT: float32 on a CPU, bfloat16 elsewhere."""
  accelerator = on_accelerator()
  texts = [' '.join(words) for words in read_tree_words(trees, sentences)]
  return compare(
    programs.embedding,
    dict(weights=weights, sentences=texts, accelerator=accelerator),
    rivals,
    counts={'sentences': len(texts)},
    repeats=20 if accelerator else 3,
    slow=True,
  )


def _word_cache(
  trees: str, weights: str, sentences: int | None
) -> dict[str, float]:
  return host.word_cache(read_tree_words(trees, sentences), weights)


def _finetune(data: str, weights: str, rivals: Programs) -> dict[str, float]:
  """Times fine-tuning on MRPC, 40 steps of 32 examples."""
  options = dict(data=data, weights=weights, task='mrpc', max_length=128)
  return compare(
    programs.epoch,
    options | {'num_examples': 1_280},
    rivals,
    counts={'examples': 1_280},
    repeats=3,
    slow=True,
  )


# A leaf of a tree, its label before its word: '(2 movie)'.
_LEAF = re.compile(r'\(\d ([^() ]+)\)')


def read_tree_words(folder: str, count: int | None = None) -> list[list[str]]:
  """Reads `count` test sentences of SST's trees, evenly spread; None: all."""
  path = epath.Path(folder) / 'test.txt'
  if not path.is_file():
    raise FileNotFoundError(f'there is no {path}, expected trees of SST in it')
  found = []
  for number, line in enumerate(text_files.lines_of(path), 1):
    words = _LEAF.findall(line)
    # Every inner node has two children.
    nodes = 2 * len(words) - 1
    if not words or not line.count('(') == line.count(')') == nodes:
      raise ValueError(
        f'{path}, line {number}: found {line[:50]!r}, expected a binary tree'
        " such as '(3 (4 Fun) (2 .))'"
      )
    found.append(words)
  if count is not None and not 0 < count <= len(found):
    raise ValueError(
      f'{count} sentences were asked for, expected 1 to the {len(found)} of'
      f' {folder}'
    )
  return evenly(found, count)


BENCHES = {
  'store': Bench(host.bench_store),
  'batches': Bench(host.bench_batches),
  'step': Bench(_step, timed=True),
  'units': Bench(_units),
  'recipes': Bench(_recipes),
  'gpt2_step': Bench(_gpt2_step, timed=True),
  'decoding': Bench(_decoding, timed=True),
  'embedding': Bench(_embedding, timed=True),
  'elmo_step': Bench(_elmo_step, timed=True),
  'elmo_embedding': Bench(_elmo_embedding, timed=True),
  'word_cache': Bench(_word_cache),
  'finetune': Bench(_finetune, timed=True),
  'inference': Bench(inference.bench),
  'squad_features': Bench(host.bench_squad_features),
  'first_step': Bench(host.bench_first_step),
  'save': Bench(host.bench_save),
  'load': Bench(host.bench_load),
  'storage': Bench(cloud.bench_storage),
  'accelerator': Bench(_accelerator, timed=True),
}
