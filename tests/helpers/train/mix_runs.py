"""Finished fine-tunings with learned averages of layers, written at once."""

import json

import jax.numpy as jnp

from train.run import checkpoint, workdirs

# Learned weights and scales: an ELMo's at both places, and a BERT's.
SST = {'input/mix': ([0.5, 2.0, -1.0], 1.5), 'output/mix': ([0.1, 0.0, 0.2], 1)}
SST_AGAIN = {
  'input/mix': ([0.0, 1.0, 0.0], 0.5),
  'output/mix': ([0.0, 0.0, 0.0], 1.2),
}
NER = {'mix': ([0.0, 1.0, 2.0, 0.5, -3.0], 0.75)}


def write_run(
  workdir, mixes, *, task='sst5', finished=True, model=True, features='mix'
):
  """Writes the files of a fine-tuning, as train.main leaves them."""
  workdir.mkdir(parents=True)
  config = {
    'model': {'name': 'bcn'},
    'task': {'name': task, 'features': features},
    'init': {'weights': 'runs/elmo'},
  }
  (workdir / 'config.json').write_text(json.dumps(config))
  if finished:
    workdirs.write_results(workdir, {'metrics': {}})
  params = {'body': {'kernel': jnp.ones((3, 2))}}
  for path, (weights, scale) in mixes.items():
    inner = params
    for part in path.split('/'):
      inner = inner.setdefault(part, {})
    inner['mix_scale'] = jnp.float32(scale)
    if weights is not None:
      inner['mix_weights'] = jnp.asarray(weights, jnp.float32)
  if model:
    folder = workdir / workdirs.MODEL_FOLDER
    with checkpoint.Checkpoints(folder, keep=1) as checkpoints:
      checkpoints.save(7, {'params': params, 'step': jnp.int32(7)})
  return workdir


def write_runs(folder):
  """Writes the runs sst, sst_again and ner, and a sweep of four runs."""
  write_run(folder / 'sst', SST)
  write_run(folder / 'sst_again', SST_AGAIN)
  write_run(folder / 'ner', NER, task='conll2003')
  runs = []
  for rate, seed, mixes in ((1, 0, SST), (1, 1, SST_AGAIN), (2, 0, SST)):
    name = f'rate={rate},seed={seed}'
    write_run(folder / 'sweep' / name, mixes)
    # The sweep was moved: `workdir` is no more.
    entry = {'folder': name, 'workdir': 'none', 'metrics': {'dev/accuracy': 1}}
    runs.append(entry | {'seed': seed, 'settings': {'rate': rate}})
  runs.append(runs[0] | {'folder': 'rate=1,seed=2', 'seed': 2})  # not kept
  summary = {'task': 'sst5', 'settings': {'rate': 1}, 'runs': runs}
  (folder / 'sweep/summary.json').write_text(json.dumps(summary))
