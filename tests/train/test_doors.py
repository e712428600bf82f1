"""Commands answer at once: no library of models is read before it is needed."""

import subprocess
import sys

import pytest

DOORS = (
  'analogies',
  'attention',
  'bench',
  'embed',
  'fill_mask',
  'generate',
  'ngram',
  'predict',
  'probe',
  'report',
  'score',
  'senses',
  'similarity',
  'tables',
  'weights',
  'zero_shot',
)
# Refused before a model or JAX is needed; each names a file that is not there.
REFUSED = (
  ('analogies', 'W'),
  ('analogies', 'W', '--questions', 'none.txt'),
  ('analogies', 'W', '--word_pairs', 'none.txt'),
  ('analogies', 'W', '--word_pairs', __file__),
  ('attention', 'W', '--text', ' ', '--out', 'a.html'),
  ('attention', 'W', '--text', 'a', '--out', 'a.png'),
  ('attention', 'W', '--winobias', 'none', '--out', 'a.png'),
  ('attention', 'W', '--example', 'nurse', '--text', 'a', '--out', 'a.html'),
  ('bench', 'nothing'),
  ('bench', 'finetune'),
  ('embed', 'W', 'none.txt', 'out.h5'),
  ('embed', 'W', 'none.txt', 'out.npy'),
  ('embed', 'W', 'none.txt', 'out.h5', '--layers=last'),
  ('embed', 'W', 'none.txt', 'out.h5', '--batch_size=2'),
  ('embed', 'W', 'none.txt', 'out.h5', '--unit=line'),
  ('fill_mask', 'W', 'no mask'),
  ('fill_mask', 'W', '[MASK]', '--top_k=0'),
  ('generate', 'W', '--input', 'none.jsonl'),
  ('generate', 'W', '--prompt', 'a', '--samples=0'),
  ('ngram', 'none', '--kenlm', 'none'),
  ('ngram', __file__, '--smoothing', 'best'),
  ('ngram', __file__, '--test', 'none'),
  ('ngram', 'none.arpa', '--test', __file__),
  ('main',),
  ('main', '--config', 'bert_teeny'),
  ('main', '--config', 'bert_tiny', '--config.train.stps=1'),
  ('main', '--config', 'bert_tiny', '--config.train.steps=abc'),
  ('main', '--config', 'bert_tiny', '--config.model.scan_layers=maybe'),
  ('main', '--config', 'bert_tiny', '--config.train.phases=((1,2'),
  ('main', '--config', 'bert_tiny', '--workdir', __file__),
  ('main', '--config', 'bert_tiny:no_nsp,ltr_no_nsp'),
  ('main', '--config', 'gpt2:x'),
  ('main', '--config', 'variants'),  # has no get_config
  ('preflight', '--config', 'bert_tiny'),
  ('probe', 'W', '--data=none', '--out=out'),
  ('probe', 'W', '--data=.', '--out=out', '--tasks=poss'),
  ('probe', 'W', '--data=.', '--out=out', '--layers=top'),
  ('report', 'none'),
  ('score', 'W', 'none.txt'),
  ('score', 'W', '--choices', 'none.jsonl'),
  ('score', 'W', 'none.txt', '--stride=0'),
  ('score', 'W', 'none.txt', '--bins=3'),
  ('senses', 'W', 'none.txt', '--word', 'a', '--out', 'o.html'),
  ('senses', 'W', '--wic', 'none'),
  ('sweep', '--config', 'bert_tiny'),
  ('sweep', '--config', 'transfer:task=rte', '--workdir', f'{__file__}/x'),
  ('weights',),
  ('similarity', 'W', 'none.txt'),
  ('similarity', 'W', '--compare', 'none'),
  ('similarity', 'W', '--parallel', 'none', 'none'),
  ('similarity', 'W', 'none.txt', '--top_k=3'),
  ('zero_shot', 'W', 'coqa', 'none.json'),
  ('zero_shot', 'W', 'translate', 'none.fr', 'none.en', '--limit=0'),
)
HEAVY = {
  *('flax', 'h5py', 'jax', 'matplotlib', 'orbax', 'tensorboardX'),
  *('tensorflow', 'tokenizers', 'torch', 'transformers'),
}
CPU_SECONDS = 2.0
# The interpreter's own time, and what it imported, when a command ends.
PROGRAM = f"""
import atexit, resource, runpy, sys
def end():
  used = resource.getrusage(resource.RUSAGE_SELF)
  heavy = {sorted(HEAVY)!r}
  print(
    '\\nSPENT',
    used.ru_utime + used.ru_stime,
    *[name for name in heavy if name in sys.modules],
    file=sys.stderr,
  )
atexit.register(end)
name = sys.argv[1]
sys.argv[:] = [name, *sys.argv[2:]]
runpy.run_module('train.' + name, run_name='__main__')
"""


def run(folder, *arguments):
  """Returns the result, the seconds of CPU time and the heavy imports."""
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    timeout=400,
  )
  message, _, spent = done.stderr.rpartition('\nSPENT ')
  seconds, *heavy = spent.split()
  done.stderr = message
  return done, float(seconds), heavy


@pytest.mark.parametrize('door', DOORS)
def test_help_is_there_at_once(door, tmp_path):
  done, seconds, heavy = run(tmp_path, door, '--help')
  assert done.returncode == 0
  assert done.stdout.startswith(f'usage: python -m train.{door} [-h]')
  assert seconds < CPU_SECONDS
  assert not heavy


@pytest.mark.parametrize(
  ('door', 'example'),
  [
    ('main', '--config bert_tiny'),
    ('preflight', '--config bert_base --topology v5litepod-16'),
    ('sweep', '--config transfer:task=rte --seeds 5'),
  ],
)
def test_commands_with_a_config_show_how_to_begin(door, example, tmp_path):
  done, seconds, heavy = run(tmp_path, door, '--help')
  assert '--config: A shipped config' in done.stdout
  assert ('--workdir: ' in done.stdout) == (door != 'preflight')
  assert seconds < CPU_SECONDS and not heavy
  done, *_ = run(tmp_path, door)
  assert done.stderr.endswith(f'python -m train.{door} {example}\n')


@pytest.mark.parametrize('arguments', REFUSED, ids=' '.join)
def test_bad_input_is_refused_at_once(arguments, tmp_path):
  done, seconds, heavy = run(tmp_path, *arguments)
  assert done.returncode in (1, 2)
  assert 'error: ' in done.stderr and 'Traceback' not in done.stderr
  assert seconds < CPU_SECONDS
  assert not heavy
  assert not list(tmp_path.iterdir())
