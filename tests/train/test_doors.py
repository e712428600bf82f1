"""Commands answer at once: no library of models is read before it is needed."""

import json
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
  'next_sentence',
  'ngram',
  'predict',
  'probe',
  'report',
  'score',
  'senses',
  'show_input',
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
  ('analogies', 'W', '--map', 'none.txt'),
  ('analogies', 'W', '--map', 'none.txt', '--out', 'a.html'),
  ('analogies', 'W', '--pairs', 'man', '--out', 'a.html'),
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
  ('generate', 'W', '--prompt', 'a', '--table=3', '--overflow=slide'),
  ('ngram', 'none', '--kenlm', 'none'),
  ('ngram', __file__, '--smoothing', 'best'),
  ('ngram', __file__, '--test', 'none'),
  ('ngram', 'none.arpa', '--test', __file__),
  ('next_sentence', 'W', 'a', ' '),
  ('next_sentence', 'W', '--input', 'none.tsv'),
  ('next_sentence', 'W', '--input', __file__),
  ('main',),
  ('main', '--config', 'bert_teeny'),
  ('main', '--config', 'bert_tiny', '--config.train.stps=1'),
  ('main', '--config', 'bert_tiny', '--config.train.steps=abc'),
  ('main', '--config', 'bert_tiny', '--config.train.seed=None'),
  ('main', '--config', 'bert_tiny', '--config.model.scan_layers=maybe'),
  ('main', '--config', 'bert_tiny', '--config.train.phases=((1,2'),
  ('main', '--config', 'bert_tiny', '--workdir', __file__),
  ('main', '--config', 'bert_tiny:no_nsp,ltr_no_nsp'),
  ('main', '--config', 'gpt2:x'),
  ('main', '--config', 'variants'),  # has no get_config
  ('predict', 'W'),
  ('predict', 'W', '--text', ' '),
  ('predict', 'W', '--question', 'a', '--context', 'none.txt'),
  ('predict', 'W', '--text', 'a', '--output', 'a.jsonl'),
  ('preflight', '--config', 'bert_tiny'),
  ('probe', 'W', '--data=none', '--out=out'),
  ('probe', 'W', '--data=.', '--out=out', '--tasks=poss'),
  ('probe', 'W', '--data=.', '--out=out', '--layers=top'),
  ('report', 'none'),
  ('score', 'W', 'none.txt'),
  ('score', 'W', '--choices', 'none.jsonl'),
  ('score', 'W', 'none.txt', '--stride=0'),
  ('score', 'W', 'none.txt', '--bins=3'),
  ('score', 'W', '--text', ' '),
  ('score', 'W', '--text', 'a', '--out', 'a.png'),
  ('score', 'W', '--text', 'a', '--top=3'),
  ('senses', 'W', 'none.txt', '--word', 'a', '--out', 'o.html'),
  ('senses', 'W', '--wic', 'none'),
  ('show_input', 'W', ' '),
  ('show_input', 'W', 'a', 'b', 'c'),
  ('show_input', 'W', 'a', '--out', 'a.txt'),
  ('show_input', 'W', 'a', '--seed=1'),
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
  'flax',
  'h5py',
  'jax',
  'matplotlib',
  'orbax',
  'tensorboardX',
  'tensorflow',
  'tokenizers',
  'torch',
  'transformers',
}
CPU_SECONDS = 2.0
# Runs the commands that it is told, a line each, in forks of itself; prints
# for each a line of its exit code, output, messages, seconds and heavy imports.
# With arguments it is that command, and its messages end in the last two.
PROGRAM = f"""
import json, os, resource, runpy, sys, tempfile, traceback

def spent():
  used = resource.getrusage(resource.RUSAGE_SELF)
  heavy = [name for name in {sorted(HEAVY)!r} if sys.modules.get(name)]
  return [used.ru_utime + used.ru_stime, heavy]

def run(name, *arguments):
  sys.argv[:] = [name, *arguments]
  try:
    runpy.run_module('train.' + name, run_name='__main__')
  except SystemExit as end:
    if isinstance(end.code, str):
      print(end.code, file=sys.stderr)
    return 1 if isinstance(end.code, str) else end.code or 0
  except BaseException:
    traceback.print_exc()
    return 1
  return 0

if sys.argv[1:]:
  code = run(*sys.argv[1:])
  print(json.dumps(spent()), file=sys.stderr)
  sys.exit(code)
import argparse, logging, numpy  # of every command, read once for all
for line in sys.stdin:
  with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as error:
    pid = os.fork()
    if not pid:
      folder, *arguments = json.loads(line)
      sys.orig_argv += arguments  # of commands that start anew
      os.chdir(folder)
      os.dup2(out.fileno(), 1), os.dup2(error.fileno(), 2)
      code = run(*arguments)
      print(json.dumps(spent()), file=sys.stderr, flush=True)
      sys.stdout.flush()
      os._exit(code)
    _, status = os.waitpid(pid, 0)
    texts = [file.seek(0) or file.read().decode() for file in (out, error)]
  print(json.dumps([os.waitstatus_to_exitcode(status), *texts]), flush=True)
"""


def ended(code, output, messages):
  """Returns a finished command, its seconds of CPU time and heavy imports."""
  *lines, last = messages.splitlines(keepends=True)
  done = subprocess.CompletedProcess([], code, output, ''.join(lines))
  return done, *json.loads(last)


def run(folder, *arguments):
  """Runs a command as a user starts it, in a new interpreter."""
  done = subprocess.run(
    [sys.executable, '-c', PROGRAM, *arguments],
    cwd=folder,
    capture_output=True,
    text=True,
    timeout=400,
  )
  return ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope='module')
def forked():
  """Returns a function like `run`, whose interpreter is a fork of one."""
  with subprocess.Popen(
    [sys.executable, '-c', PROGRAM],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as program:

    def run_forked(folder, *arguments):
      program.stdin.write(json.dumps([str(folder), *arguments]) + '\n')
      program.stdin.flush()
      return ended(*json.loads(program.stdout.readline()))

    yield run_forked
    program.stdin.close()


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
def test_bad_input_is_refused_at_once(arguments, forked, tmp_path):
  done, seconds, heavy = forked(tmp_path, *arguments)
  assert done.returncode in (1, 2)
  assert 'error: ' in done.stderr and 'Traceback' not in done.stderr
  assert seconds < CPU_SECONDS
  assert not heavy
  assert not list(tmp_path.iterdir())
