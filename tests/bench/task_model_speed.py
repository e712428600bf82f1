"""Training steps of AllenNLP's task models and of ours, to be timed."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from task_model_rows import RECIPES, Inputs, Recipe, read

from data.examples import pipeline
from train.benches import timing
from train.benches.timing import Program
from train.host.console import say

# Model -> (task, sizes) of `speed`: as published, where that is not too large.
TIMED = {
  'bcn': ('sst5', {}),
  'esim': ('scitail', {}),
  'bilstm_crf': ('panx_en', {}),
  'bilstm_attention': ('mrpc', {'dim': 300}),
  'deep_srl': ('srl_ewt', {}),
  'e2e_coref': ('coref_gum', {'batch': 1}),  # a step is a document
  'bidaf': ('squad1', {}),
}
NUM_TIMED = 8  # batches, evenly spread over an epoch


def timed_batches(
  data: str, task: str, recipe: Recipe
) -> tuple[Inputs, list[pipeline.Batch]]:
  """Returns a task, and batches from all parts of an epoch."""
  inputs = read(task, data, recipe)
  batches = inputs.splits['train'].batches
  total = len(batches.features) // recipe.batch
  return inputs, [
    batches.train_batch(
      i * total // NUM_TIMED, pipeline.ALL_ROWS, recipe.batch, 0, total
    )
    for i in range(NUM_TIMED)
  ]


def _take_cores(count: int) -> None:
  """Keeps this process to the last cores; XLA has a thread for each."""
  os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])


def theirs(*, data: str, task: str, recipe: Recipe, threads: int) -> Program:
  """Makes `NUM_TIMED` training steps on PyTorch, see `timing.Program`."""
  _take_cores(threads)
  import torch
  from task_model_torch import Model, make_step

  torch.set_num_threads(threads)
  torch.manual_seed(0)
  inputs, batches = timed_batches(data, task, recipe)
  step = make_step(Model(inputs, recipe, 0), recipe)
  return lambda: [step(batch) for batch in batches], 0.0


def ours(*, data: str, task: str, recipe: Recipe, threads: int) -> Program:
  """Makes `NUM_TIMED` training steps of ours, each one compiled program."""
  _take_cores(threads)
  import jax
  import jax.numpy as jnp
  import optax
  from flax import linen as nn

  from configs import base
  from models import crf
  from models.elmo_tasks.coref import loss as coref
  from train.engine import sharding
  from train.host import device

  device.enable_compilation_cache()
  inputs, batches = timed_batches(data, task, recipe)
  model = our_model(inputs, recipe)
  rate = recipe.learning_rate
  make = {
    'deep_srl': functools.partial(optax.adadelta, rho=0.95, eps=1e-6),
    'bidaf': functools.partial(optax.adam, b2=0.9),
  }.get(recipe.model, optax.adam)
  tx = optax.chain(optax.clip_by_global_norm(recipe.clip_norm), make(rate))
  score = optax.softmax_cross_entropy_with_integer_labels

  def loss_of(params: Any, batch: Mapping, rng: jax.Array) -> jax.Array:
    outputs = model.apply(
      {'params': params},
      *inputs_of(model, batch),
      train=True,
      rngs={'dropout': rng},
    )
    labels = batch['labels']
    if 'antecedents' in outputs:
      return coref.antecedent_losses(outputs, labels).sum()
    if 'transitions' in outputs:
      emissions, scores = outputs['emissions'], outputs['transitions']
      found = crf.log_likelihood(emissions, scores, labels, labels >= 0)
      return -found.sum()
    logits = outputs['logits']
    if recipe.model == 'bidaf':
      logits = logits.swapaxes(1, 2)  # [B, 2, T]
    is_there = labels >= 0
    losses = score(logits, jnp.maximum(labels, 0)) * is_there
    return losses.sum() / is_there.sum()

  def step(state: tuple, batch: Mapping) -> tuple[tuple, jax.Array]:
    params, tx_state, number = state
    rng = jax.random.fold_in(jax.random.key(0), number)
    loss, gradient = jax.value_and_grad(loss_of)(params, batch, rng)
    update, tx_state = tx.update(gradient, tx_state, params)
    return (optax.apply_updates(params, update), tx_state, number + 1), loss

  arrays = [{k: x for k, x in b.items() if k != 'last'} for b in batches]
  if not recipe.characters:
    arrays = [{k: x for k, x in b.items() if k != 'characters'} for b in arrays]
  params = jax.jit(
    lambda rng, batch: nn.unbox(
      model.init(rng, *inputs_of(model, batch), train=False)
    )['params']
  )(jax.random.key(0), arrays[0])
  state = params, tx.init(params), 0
  # As in training.
  mesh = sharding.make_mesh(base.get_config().mesh, jax.devices()[:1])
  program = jax.jit(
    step,
    donate_argnums=0,
    compiler_options=device.compiler_options(mesh),
  )

  def run_all() -> list[float]:
    nonlocal state
    losses = []
    for batch in arrays:
      state, loss = program(state, batch)
      losses.append(float(loss))  # waits for it, as PyTorch's step does
    return losses

  return run_all, 0.0


def our_model(inputs: Inputs, recipe: Recipe) -> Any:
  """Returns our model of the same recipe, a `reader.Reader`."""
  from data.vocabulary import tag_schemes
  from models.elmo_tasks import (
    bcn,
    bidaf,
    bilstm_attention,
    bilstm_crf,
    deep_srl,
    esim,
    reader,
  )
  from models.elmo_tasks.coref import model as coref
  from train.transfer import bodies

  F, H, rate = recipe.dim, recipe.hidden, recipe.dropout
  K, layers = len(inputs.labels), recipe.layers
  body = {
    'bcn': lambda: bcn.Bcn(K, H, F, recipe.maxout, input_dropout_rate=rate),
    'esim': lambda: esim.Esim(K, F, H, rate),
    'bilstm_crf': lambda: bilstm_crf.BilstmTagger(K, F, layers, rate),
    'bilstm_attention': lambda: bilstm_attention.BilstmAttention(
      K, True, F, layers, H, rate
    ),
    'deep_srl': lambda: deep_srl.DeepSrl(K, F, layers, rate, 'allennlp'),
    'e2e_coref': lambda: coref.EndToEndCoref(
      K + 1,  # a genre of its own for the others
      'allennlp',
      lstm_dim=F,
      hidden_dim=H,
      max_antecedents=100,  # training_config/coref.jsonnet
      dropout_rate=rate,
    ),
    'bidaf': lambda: bidaf.Bidaf(F, layers, dropout_rate=rate),
  }[recipe.model]()
  kind = inputs.task.kind
  return reader.Reader(
    body,
    num_texts=2 if kind == 'span' else inputs.task.num_texts,
    num_rows=inputs.table.num_rows,
    word_dim=inputs.table.dim,
    fixed_words=recipe.fixed,
    char_embed_dim=recipe.char_dim,
    filters=(
      ((recipe.char_width, recipe.characters),) if recipe.characters else ()
    ),
    char_dropout_rates=(0.0, recipe.char_dropout),
    num_layers=inputs.layers_shape[0],
    mix_at=recipe.mix_at,
    layer_norm=recipe.layer_norm,
    mix_dropout_rate=recipe.mix_dropout,
    transitions=tag_schemes.allowed(inputs.labels)
    if kind in ('tagging', 'roles')
    else None,
    path_scores='log_probabilities' if kind == 'roles' else 'learned',
    array_names=tuple(bodies.BODIES[recipe.model].arrays),
    mark_dim=100 if kind == 'roles' else 0,  # as ours has it
  )


def inputs_of(model: Any, batch: Mapping[str, Any]) -> tuple:
  """Returns the arrays of a batch that `our_model` reads."""
  from train.transfer import bodies

  names = ('tokens', 'token_mask', 'characters', 'vectors')
  arrays = bodies.BODIES['e2e_coref'].arrays
  return (
    *(batch.get(name) for name in names),
    batch['token_types'] if model.mark_dim else None,
    tuple(batch[arrays[name]] for name in model.array_names),
  )


def measure(
  data: str,
  models: list[str],
  changes: Mapping[str, Any],
  repeats: int,
  threads: int,
) -> dict[str, dict[str, float]]:
  """Times training steps of ours beside PyTorch's, in turns.

  Args:
    data: folder of the sets.
    models: keys of `TIMED`.
    changes: fields of `Recipe` -> values.
    repeats: how often the batches are read; the median counts.
    threads: of each program.

  Returns:
    By model the steps in a second and how many times as fast ours is.
  """
  results = {}
  for name in models:
    task, sizes = TIMED[name]
    # Words in a fixed table, so that the rows of a task do not count.
    recipe = dataclasses.replace(
      RECIPES[name], **{'batch': 32, 'fixed': True} | sizes | changes
    )
    results[name] = timing.compare(
      ours,
      {'data': data, 'task': task, 'recipe': recipe, 'threads': threads},
      {'pytorch': (theirs, {})},
      counts={'steps': NUM_TIMED},
      repeats=repeats,
    )
    shown = (f'{key} {value:.3g}' for key, value in results[name].items())
    say(f'{name}: {", ".join(shown)}')
  return results
