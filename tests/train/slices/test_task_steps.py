"""Fine-tunings and task models on a slice, planned without their data."""

import json
import re
import subprocess
import sys

import jax
import pytest

from train.run import settings
from train.slices import task_steps

SMALL = {
  'model.lstm_dim': 4,
  'model.hidden_dim': 4,
  'task.max_length': 8,
  'train.global_batch': 16,
  'eval.global_batch': 16,
}
NUM_WORDS = 30


def plan(name, **changes):
  config = settings.load_config(f'transfer:task={name}')
  config = settings.with_overrides(
    config,
    {key: value for key, value in SMALL.items() if key not in changes}
    | changes,
  )
  return task_steps.plan(config, jax.devices()[:2], NUM_WORDS)


def batch_of(planned):
  """Returns {name: shape} of the batch of a lowered step, and its texts."""
  lowered = planned.lower(planned.phases[0])
  (_, batch, *rest), _ = lowered.args_info
  return {name: x.shape for name, x in batch.items()}, len(rest)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'rows', 'labels', 'steps', 'num_scalars'),
  [
    # Steps: epochs x examples / 16. With a plateau the rate is an argument.
    ('sst5,model=bcn', (16, 8), (16,), 40 * 8544 // 16, 1),
    ('snli,model=esim', (16, 2, 8), (16,), -(-75 * 549367 // 16), 2),
    ('swag,model=esim', (16, 8, 8), (16,), -(-75 * 73546 // 16), 2),
    ('stsb,model=bilstm_attention', (16, 2, 8), (16,), 20 * 5749 // 16 + 1, 2),
    ('conll2003,model=bilstm_crf', (16, 8), (16, 8), 75 * 14041 // 16 + 1, 1),
    ('srl_ewt,model=deep_srl', (16, 8), (16, 8), 500 * 40423 // 16 + 1, 1),
    ('squad1,model=bidaf', (16, 2, 8), (16, 2), 20 * 87599 // 16 + 1, 2),
    # 50 sentences of 8 words, with room for 472 words and 32 mentions.
    ('coref_gum,model=e2e_coref', (16, 472), (16, 32, 3), 1660, 1),
  ],
)
def test_a_batch_has_the_longest_rows(name, rows, labels, steps, num_scalars):
  planned = plan(name)
  (phase,) = planned.phases
  assert (phase.steps, phase.length, phase.global_batch) == (steps, 8, 16)
  shapes, scalars = batch_of(planned)
  assert shapes['tokens'] == rows and shapes['labels'] == labels
  assert scalars == num_scalars
  assert 'vectors' not in shapes
  # A word of the most characters, and the filters' room behind it.
  has_filters = re.search('crf|bidaf|coref', name)
  characters = (*rows, 50) if has_filters else None
  assert shapes.get('characters') == characters
  table = planned.shapes.params['words']['table']
  assert table.shape == (NUM_WORDS + 1, 100)
  assert planned.flops(phase) > 0
  assert planned.notes['weights'] == 'none: no language model'


def test_a_language_model_and_fixed_words_are_counted(small_bert, tmp_path):
  planned = plan(
    'sst5,model=bcn',
    **{
      'init.weights': str(small_bert),
      'task.word_vectors': '/nowhere/glove.txt',  # is not read
      'task.word_dim': 50,
      'data.cache': str(tmp_path / 'cache'),
    },
  )
  shapes, _ = batch_of(planned)
  assert shapes['vectors'] == (16, 8, 3, 32)
  assert planned.shapes.params['words']['table'].shape == (NUM_WORDS + 1, 50)
  # Vectors that are not trained have no moments.
  moments = jax.tree.leaves(planned.shapes.opt_state)
  assert not any(x.shape == (NUM_WORDS + 1, 50) for x in moments)
  assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize(
  ('name', 'rows', 'labels', 'steps'),
  [
    # Epochs x examples / 16, cut as BERT's release does.
    ('sst2', (16, 24), (16,), 3 * 67349 // 16),
    ('stsb', (16, 24), (16,), 3 * 5749 // 16),
    ('swag', (16, 4, 24), (16,), 3 * 73546 // 16),
    ('conll2003', (16, 24), (16, 24), 3 * 14041 // 16),
    ('squad1', (16, 24), (16, 2), 3 * 87599 // 16),
    ('srl_ewt', (16, 24), (16, 24), 3 * 40423 // 16),
  ],
)
def test_a_language_model_reads_the_most_tokens(
  name, rows, labels, steps, small_bert
):
  config = settings.with_overrides(
    settings.load_config(f'transfer:task={name}'),
    {
      'init.weights': str(small_bert),
      'task.max_length': 24,
      'train.global_batch': 16,
      'eval.global_batch': 16,
    },
  )
  planned = task_steps.plan(config, jax.devices()[:2], NUM_WORDS)
  (phase,) = planned.phases
  assert (phase.steps, phase.length, phase.global_batch) == (steps, 24, 16)
  shapes, _ = batch_of(planned)
  assert shapes['tokens'] == rows and shapes['labels'] == labels
  assert planned.flops(phase) > 0
  assert planned.notes['weights'] == str(small_bert)


@pytest.mark.parametrize(
  ('name', 'changes', 'message'),
  [
    ('mrpc', {}, 'init.weights is empty: give weights to begin with'),
    ('mrpc+rte,model=bilstm_attention', {}, 'is of 2 tasks, expected one'),
    ('own,model=bcn', {}, 'is of a task of your own'),
    ('sst5,model=esim', {}, 'which bcn or bilstm_attention reads'),
    ('sst5,model=bcn', {'train.global_batch': 3}, 'train.global_batch=3'),
    ('sst5,model=bcn', {'task.mix_l2': 0.1}, 'there are no layers to mix'),
  ],
)
def test_other_configs_are_refused(name, changes, message):
  if name == 'mrpc':
    config = settings.load_config('transfer:task=mrpc')
    with pytest.raises(ValueError, match=re.escape(message)):
      task_steps.plan(config, jax.devices()[:2], NUM_WORDS)
    return
  with pytest.raises(ValueError, match=re.escape(message)):
    plan(name, **changes)


@pytest.mark.slow
def test_the_step_compiles_for_a_slice():
  done = subprocess.run(
    [
      sys.executable,
      '-m',
      'train.preflight',
      '--topology',
      'v5e-4',
      '--config',
      'transfer:task=conll2003,model=bilstm_crf',
      '--json',
      *(f'--config.{key}={value}' for key, value in SMALL.items()),
      '--words',
      str(NUM_WORDS),
      '--config.model.num_layers=1',
    ],
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  assert '30 with vectors of 100' in done.stderr
  assert 'Verdict: fits v5e-4' in done.stderr
  report = json.loads(done.stdout)
  (phase,) = report['phases']
  assert phase['fits'] and phase['rows_a_chip'] == 4
  assert phase['steps'] == 75 * 14041 // 16 + 1
  assert phase['memory']['parameters'] == report['parameter_bytes']
  # Each chip keeps all parameters: their gradients travel.
  reduced = phase['collective_bytes']['all-reduce']
  assert reduced >= 4 * report['parameters']
  kinds = phase['estimate']['by_kind']
  assert kinds['recurrence'] > 0 and kinds['head'] > 0
  assert report['hours'] == pytest.approx(
    phase['steps']
    * (phase['estimate']['seconds'] + phase['estimate']['links_seconds'])
    / 3600
  )
