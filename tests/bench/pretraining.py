r"""Pre-trains beside Hugging Face's classes on PyTorch, on the same batches.

  python tests/bench/beside.py pretraining [--config bert_tiny] \
    [--steps 2000] [--rate 5e-4] [--seeds 3] [--dropout] --output FILE.json

Ours draws the parameters and the rows, with their masks; Hugging Face's class
for the pre-training of BERT, or of GPT, begins with the same parameters, and
learns from the same rows by BERT's or GPT's own optimiser at the same rates.
Both programs take each step in turns, in float32, so their seconds compare.
Without dropout, rounding alone tells their losses apart; with it each draws its
own masks, and what they come to is compared over seeds. Where the rate is too
high, rounding grows: with --rate 2e-3, that of bert_tiny's AdamW, the losses
are 0.09 apart at step 200. FILE.json has the
losses of all steps, FILE.png shows them. A seed that FILE.json has is not run
again.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections
import numpy as np
from etils import epath

from data.examples.pipeline import Batch
from train.engine import sharding, steps
from train.host import device, files, pictures
from train.host.console import say
from train.pretrain import job as pretraining_job
from train.run import command, settings
from train.run.job import Job

# Steps over which the losses without dropout are compared one by one.
COMPARED = 200
POINTS = 40  # of a curve of the picture, each the mean of some steps
END = 100  # last steps, whose mean is the end of a run
DROPOUTS = ('model.dropout_rate', 'model.attention_dropout_rate')
DROPOUT = 0.1  # the papers'
OPTIMIZERS = {'bert': 'bert_adam', 'gpt': 'gpt_adam'}


class TorchAdam:
  """Adam of BERT (google-research/bert, optimization.py) and of GPT (opt.py).

  The gradient is clipped to a global norm. The update is rate * (m / (sqrt(v) +
  epsilon) + decay * p), without decay of norms and biases; GPT's rate has the
  factor of bias correction.
  """

  def __init__(self, model: Any, optim: ml_collections.ConfigDict) -> None:
    import torch

    self.optim, self.steps = optim, 0
    # Tied matrices are one parameter.
    self.parameters = dict(model.named_parameters())
    self.means, self.squares = (
      {name: torch.zeros_like(p) for name, p in self.parameters.items()}
      for _ in range(2)
    )

  def step(self, rate: float) -> None:
    """Changes the parameters by their gradients, and forgets these."""
    import torch

    optim, parameters = self.optim, self.parameters
    self.steps += 1
    torch.nn.utils.clip_grad_norm_(parameters.values(), optim.clip_norm)
    if optim.name == 'gpt_adam':
      rate *= (1 - optim.beta2**self.steps) ** 0.5
      rate /= 1 - optim.beta1**self.steps
    with torch.no_grad():
      for name, parameter in parameters.items():
        mean, square = self.means[name], self.squares[name]
        mean.lerp_(parameter.grad, 1 - optim.beta1)
        square.mul_(optim.beta2)
        square.addcmul_(parameter.grad, parameter.grad, value=1 - optim.beta2)
        update = mean / (square.sqrt() + optim.epsilon)
        if parameter.ndim > 1:
          update += optim.weight_decay * parameter
        parameter -= rate * update
        parameter.grad = None


def _bert_loss(model: Any, batch: Mapping[str, Any]) -> Any:
  """Returns the losses of masked tokens and next sentences, added."""
  import torch

  outputs = model(
    input_ids=batch['tokens'],
    attention_mask=batch['token_mask'],
    token_type_ids=batch['token_types'],
    position_ids=batch['positions'],
  )
  rows = torch.arange(len(batch['tokens']))[:, None]
  masked = outputs.prediction_logits[rows, batch['mlm_positions']]
  loss = _mean_loss(masked, batch['mlm_targets'], batch['mlm_weights'])
  return loss + _mean_loss(
    outputs.seq_relationship_logits, batch['nsp_labels'], batch['nsp_weights']
  )


def _gpt_loss(model: Any, batch: Mapping[str, Any]) -> Any:
  """Returns the loss of the next tokens."""
  logits = model(input_ids=batch['tokens']).logits
  return _mean_loss(logits, batch['targets'], batch['loss_weights'])


def _mean_loss(logits: Any, targets: Any, weights: Any) -> Any:
  import torch

  losses = torch.nn.functional.cross_entropy(
    logits.flatten(0, -2), targets.flatten().long(), reduction='none'
  )
  return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1)


LOSSES: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {
  'bert': _bert_loss,
  'gpt': _gpt_loss,
}


class Theirs:
  """Hugging Face's model with the parameters of ours, and its optimiser."""

  def __init__(
    self, params: Mapping, model: Any, config: ml_collections.ConfigDict
  ) -> None:
    import torch
    import transformers

    from models.pretrained import hugging_face

    transformers.logging.disable_progress_bar()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(config.train.seed)
    with tempfile.TemporaryDirectory() as folder:
      place = epath.Path(folder) / 'weights'
      hugging_face.write_folder(place, model, params)
      self.model = transformers.AutoModelForPreTraining.from_pretrained(
        str(place)
      ).train()
    self.optimizer = TorchAdam(self.model, config.optim)
    self.loss_of = LOSSES[config.model.name]

  def step(self, batch: Batch, rate: float) -> float:
    """Learns from a batch; returns the loss before the change."""
    import torch

    loss = self.loss_of(
      self.model, {name: torch.tensor(x) for name, x in batch.items()}
    )
    loss.backward()
    self.optimizer.step(rate)
    return loss.item()


class Step(NamedTuple):
  """What both programs report of a step: losses in nats, and seconds."""

  ours: float
  theirs: float
  our_seconds: float
  their_seconds: float


def train_both(job: Job) -> Iterator[Step]:
  """Takes each step of a job by both programs."""
  config, seed = job.config, job.config.train.seed
  with sharding.scope(job.mesh, config.mesh.rules):
    state = job.create()
    stage = job.stage(0)
    theirs = Theirs(jax.device_get(state.params), stage.model, config)
    transform = jax.jit(stage.objective.transform_at)
    for number in range(job.total_steps):
      host_batch = job.batch(number, whole=True)
      rows = np.arange(len(next(iter(host_batch.values()))))
      keys = steps.row_keys(seed, steps.TRAIN_STREAM, number, rows)
      batch = jax.device_get(transform(host_batch, keys, number))
      began = time.perf_counter()
      state, report = job.steps[job.stage(number).name](
        state, sharding.put_batch(host_batch, job.mesh)
      )
      loss, rate = (float(report[key]) for key in ('loss', 'learning_rate'))
      between = time.perf_counter()
      their_loss = theirs.step(batch, rate)
      ended = time.perf_counter()
      yield Step(loss, their_loss, between - began, ended - between)


def make_job(
  config: ml_collections.ConfigDict,
  num_steps: int,
  seed: int,
  folder: str,
  *,
  rate: float,
  dropout: bool,
) -> Job:
  """Returns our job of so many steps, in float32, in an empty folder.

  Raises ValueError if Hugging Face has no such model.
  """
  if config.model.name not in OPTIMIZERS:
    raise ValueError(
      f'the config is of a {config.model.name}, expected one of'
      f' {", ".join(OPTIMIZERS)}'
    )
  if config.model.name == 'bert' and config.train.objective != 'bert':
    raise ValueError(
      f'train.objective={config.train.objective!r}: BertForPreTraining also'
      " learns next sentences, expected 'bert'"
    )
  length, rows = config.train.phases[0][1:3]
  changes: dict[str, Any] = {
    'model.dtype': 'float32',
    'optim.name': OPTIMIZERS[config.model.name],
    'optim.learning_rate': rate,
    'train.phases': ((num_steps, length, rows, 'continue'),),
    'train.seed': seed,
  }
  changes |= dict.fromkeys(DROPOUTS, DROPOUT if dropout else 0.0)
  config = settings.with_overrides(config, changes)
  pretraining_job.check_config(config)
  return pretraining_job.make(config, folder)


def summary(runs: Mapping[str, Mapping[str, list[float]]]) -> dict[str, Any]:
  """Returns how far the losses of all seeds are apart, and the seconds."""
  ends = {
    name: [statistics.fmean(run[name][-END:]) for run in runs.values()]
    for name in ('ours', 'theirs')
  }
  first = [
    np.abs(np.subtract(run['ours'], run['theirs']))[:COMPARED].max()
    for run in runs.values()
  ]
  seconds = {
    name: statistics.median(sum((run[name] for run in runs.values()), []))
    for name in ('our_seconds', 'their_seconds')
  }
  return {
    f'largest_difference_of_{COMPARED}_steps': float(max(first)),
    f'mean_loss_of_last_{END}_steps': ends,
    **seconds,
    'speed_ratio': seconds['their_seconds'] / seconds['our_seconds'],
  }


def draw(record: Mapping[str, Any], path: epath.Path) -> None:
  """Draws the losses of both programs, and their difference."""
  figure = pictures.figure(7, 6)
  above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
  size = -(-record['steps'] // POINTS)
  for number, (seed, run) in enumerate(record['runs'].items()):
    curves = {name: _means(run[name], size) for name in ('ours', 'theirs')}
    places = (np.arange(len(curves['ours'])) + 0.5) * size
    below.axhline(0, color='0.8', linewidth=0.8)
    for name, style in (('ours', '-'), ('theirs', '--')):
      above.plot(
        places,
        curves[name],
        style,
        color=f'C{number}',
        label=f'{"Sesame" if name == "ours" else "PyTorch"}, seed {seed}',
      )
    below.plot(places, curves['ours'] - curves['theirs'], color=f'C{number}')
  above.set_ylabel('training loss, nats')
  above.set_title(record['title'])
  above.legend()
  below.set_ylabel('Sesame - PyTorch')
  below.set_xlabel(f'step; a point is the mean of {size}')
  pictures.save(figure, path, dpi=120)


def _means(losses: Sequence[float], size: int) -> np.ndarray:
  """Returns the means of `size` losses each, without a rest."""
  whole = len(losses) // size * size
  return np.reshape(losses[:whole], (-1, size)).mean(axis=1)


def _run(flags: argparse.Namespace) -> None:
  import torch
  import transformers

  path = pathlib.Path(flags.output)
  files.check_new(path, overwrite=True)
  asked = {
    'config': flags.config,
    'steps': flags.steps,
    'rate': flags.rate,
    'dropout': flags.dropout,
    'transformers': transformers.__version__,
    'torch': torch.__version__,
  }
  record: dict[str, Any] = {'runs': {}}
  if path.exists():
    record = json.loads(path.read_text())
    found = {k: record[k] for k in asked if record[k] != asked[k]}
    expected = {k: asked[k] for k in found}
    if found:
      raise ValueError(
        f'{path} is of other runs: found {found}, expected {expected};'
        ' name another --output'
      )
  dropout = 'with dropout' if flags.dropout else 'without dropout'
  record |= asked | {
    'title': f'{flags.config}, {dropout}: the same rows and first parameters',
    'command': shlex.join(['python', 'tests/bench/beside.py', *sys.argv[1:]]),
    'device': device.describe(),
    'revision': device.revision(),
  }
  for seed in range(flags.seeds):
    if str(seed) in record['runs']:
      continue
    found: list[Step] = []
    with tempfile.TemporaryDirectory() as folder:
      job = make_job(
        settings.load_config(flags.config),
        flags.steps,
        seed,
        folder,
        rate=flags.rate,
        dropout=flags.dropout,
      )
      for step in train_both(job):
        found.append(step)
        if len(found) % 100 == 0 or len(found) == 1:
          say(f'seed {seed}, step {len(found)}: {step}')
    record['runs'][str(seed)] = {
      name: [round(getattr(step, name), 6) for step in found]
      for name in Step._fields
    }
    record['summary'] = summary(record['runs'])
    files.write_atomically(path, json.dumps(record) + '\n')
  print(json.dumps(record['summary'], indent=1))
  draw(record, epath.Path(path.with_suffix('.png')))


def main() -> None:
  """Prints how far the losses of both programs are apart."""
  parser = argparse.ArgumentParser(
    prog='python tests/bench/beside.py pretraining',
    description=__doc__.split('\n')[0],
    allow_abbrev=False,
  )
  parser.add_argument('--config', default='bert_tiny')
  parser.add_argument('--steps', type=int, default=2_000)
  parser.add_argument(
    '--rate', type=float, default=5e-4, help='the peak of the learning rate'
  )
  parser.add_argument('--seeds', type=int, default=1)
  parser.add_argument(
    '--dropout', action='store_true', help=f'of {DROPOUT}; else none'
  )
  parser.add_argument('--output', required=True, help='FILE.json')
  flags = parser.parse_args(sys.argv[2:])
  command.run(lambda: _run(flags))
