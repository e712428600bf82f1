"""Our programs to be timed, see `timing.Program`."""

import tempfile
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from configs import variants
from data.examples import pipeline, transforms
from data.store import build
from data.vocabulary import characters
from models import decoding as greedy
from models import gpt
from train.architectures import elmo
from train.architectures.architecture import Vocabulary
from train.benches.timing import Program
from train.engine import sharding
from train.engine.state import TrainState
from train.engine.steps import Batch
from train.host import device
from train.pretrain import assemble
from train.run import settings, training_phases
from train.run.training_phases import Phase
from train.transfer import finetune
from train.vectors import elmo_vectors
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

PROMPT_TOKENS = 16
# The products of a BERT-Base layer's MLP at 8 x 128 tokens.
PRODUCT = ((1024, 768), (768, 3072))
NUM_PRODUCTS = 20  # a step
PRODUCTS_FLOPS = NUM_PRODUCTS * 2 * 1024 * 768 * 3072
ELMO = 'elmo_1b:elmo'


def _dtype(accelerator: bool) -> str:
  return 'bfloat16' if accelerator else 'float32'


def compiled_step(
  config: str, batch: int, length: int, overrides: settings.FlatConfig
) -> tuple[jax.stages.Compiled, TrainState, Batch, float]:
  """Returns a compiled training step, its state, a batch and its FLOPs."""
  job = plan_step(config, batch, length, overrides)
  tokenizer = job.config.data.tokenizer
  # The text inside every Python has as many distinct words as other texts.
  with tempfile.TemporaryDirectory() as folder:
    store = build.ensure_store(
      'manual', tokenizer, f'{folder}/store', progress=False
    )
    examples = job.objective.open_examples(
      job.config,
      store,
      length,
      held_out=False,
    )
    text = examples.train_batch(0, pipeline.ALL_ROWS, batch, 0, 0)
  return compile_step(job, text)


def plan_step(
  config: str, batch: int, length: int, overrides: settings.FlatConfig
) -> assemble.Parts:
  """Returns a planned run of one phase, on one device."""
  device.enable_compilation_cache()
  config = settings.with_overrides(
    settings.load_config(config), {'train.micro_batches': 1, **overrides}
  )
  phase = Phase(1_000_000, length, batch, 'continue')
  mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
  size = build.trained_size(config.data.tokenizer)
  return assemble.build_parts(config, (phase,), Vocabulary.of_size(size), mesh)


def compile_step(
  job: assemble.Parts, text: Mapping[str, np.ndarray]
) -> tuple[jax.stages.Compiled, TrainState, Batch, float]:
  """Returns a run's compiled step, its state, a batch and its FLOPs."""
  (phase,) = job.phases
  with sharding.scope(job.mesh, job.config.mesh.rules):
    state, text = job.create_state(), sharding.put_batch(text, job.mesh)
    program = job.train_step(phase.length).lower(state, text).compile()
  return program, state, text, job.step_flops(phase)


def _training(
  program: Callable, state: TrainState, batch: Batch, flops: float
) -> Program:
  """Returns a function that trains one more step, and its FLOPs."""

  def run() -> None:
    nonlocal state
    state, report = program(state, batch)
    jax.block_until_ready(report)

  return run, flops


def step(
  size: str, *, batch: int, length: int, dropout: float, accelerator: bool
) -> Program:
  """Makes a training step of a BERT or GPT-2 of `configs.variants`."""
  config = 'gpt2' if size in variants.GPT2 else 'bert_base'
  overrides = {
    'model.dtype': _dtype(accelerator),
    'model.scan_layers': accelerator,
    'model.dropout_rate': dropout,
    'model.attention_dropout_rate': dropout,
  }
  return _training(*compiled_step(f'{config}:{size}', batch, length, overrides))


def recipe_step(config: str) -> Program:
  """Makes a training step of a config's first phase, in one micro-batch."""
  phase = training_phases.check_phases(settings.load_config(config))[0]
  return _training(*compiled_step(config, phase.global_batch, phase.length, {}))


def random_text(job: assemble.Parts) -> dict[str, np.ndarray]:
  """Returns a host batch of random ids; units begin at every other token."""
  (phase,) = job.phases
  stored = training_phases.has_units(job.config, phase.kind)
  rng = np.random.default_rng(0)
  text = {}
  shapes = job.objective.batch_shapes(phase.length, phase.global_batch)
  for name, shape in shapes.items():
    values = rng.integers(5, job.model.vocab_size, shape.shape)
    if 'window' in name:
      values[:, ::2] += transforms.UNIT_START * stored
    elif 'lengths' in name:
      values[:] = text['window'].shape[1]
    elif 'starts' in name:
      values = values % 20 == 0
    elif name == 'example_mask':
      values[:] = 1
    text[name] = values.astype(shape.dtype)
  return text


def unit_step(
  *, config: str, batch: int, length: int, unit: str, counting: str
) -> Program:
  """Makes a training step of a BERT with masks of a unit, on random ids."""
  overrides = {'objective.unit': unit, 'objective.counting': counting}
  job = plan_step(config, batch, length, overrides)
  return _training(*compile_step(job, random_text(job)))


def elmo_step(
  *, batch: int, length: int, num_words: int, num_samples: int
) -> Program:
  """Makes a training step of the original ELMo, in float32.

  Each direction reads `batch` rows of `length` words.
  """
  overrides = {
    'model.dtype': 'float32',
    'model.num_samples': num_samples,
    'data.tokenizer': f'train:words:{num_words}',
  }
  return _training(*compiled_step(ELMO, batch, length, overrides))


def epoch(
  *, task: str, data: str, weights: str, num_examples: int, max_length: int
) -> Program:
  """Makes an epoch of fine-tuning by the recipe `stable`, in batches of 32."""
  device.enable_compilation_cache()
  config = settings.with_overrides(
    settings.load_config(f'transfer:task={task},recipe=stable'),
    {
      'init.weights': weights,
      'data.source': data,
      'data.train_limit': num_examples,  # evenly spaced
      'task.max_length': max_length,
      'train.platform': jax.default_backend(),
      'train.num_epochs': 1.0,
    },
  ).lock()
  mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
  job = finetune.plan(config, mesh, splits=('train',))
  with sharding.scope(mesh, config.mesh.rules):
    state = job.begin(0)
  batches, seed = job.tasks[0].splits['train'].batches, jnp.int32(0)
  shape = pipeline.ALL_ROWS, config.train.global_batch, 0, job.total_steps

  def run() -> None:
    nonlocal state
    report = None
    with sharding.scope(mesh, config.mesh.rules):
      for number in range(job.total_steps):
        batch = sharding.put_batch(batches.train_batch(number, *shape), mesh)
        before = report
        state, report = job.steps['train'](state, batch, seed)
        jax.block_until_ready(before)  # one step ahead, as in training
      jax.block_until_ready(state)

  return run, 0.0


def decoding(
  size: str, *, batch: int, new_tokens: int, accelerator: bool
) -> Program:
  """Makes greedy decoding by a GPT-2 of random parameters."""
  device.enable_compilation_cache()
  model = gpt.Gpt(
    vocab_size=50_257,
    max_length=1024,
    pre_norm=True,
    dtype=jnp.dtype(_dtype(accelerator)),
    **variants.GPT2[size],
  )
  zeros = jnp.zeros((1, 8), jnp.int32)
  init = jax.jit(
    lambda rng: model.init(rng, zeros, zeros == 0, zeros, train=False)
  )
  params = nn.unbox(init(jax.random.key(0)))['params']
  model, params = gpt.prepare_decoding(model, params)
  tokens = np.random.default_rng(0).integers(0, 50_257, (batch, PROMPT_TOKENS))

  def run() -> None:
    for _ in greedy.generate(
      model,
      params,
      tokens,
      np.full(batch, PROMPT_TOKENS),
      max_new_tokens=new_tokens,
      rngs=jax.random.split(jax.random.key(0), batch),
    ):
      pass

  return run, 0.0


def embedding(
  *, weights: str, sentences: Sequence[str], accelerator: bool
) -> Program:
  """Makes an embedding of texts, in bfloat16 on an accelerator."""
  device.enable_compilation_cache()
  found = TrainedModel(weights, dtype=_dtype(accelerator))
  _ = found.params  # read before the clock starts

  def run() -> list[np.ndarray]:
    vectors = found.vectors(sentences, Request(pool='mean'))
    return [each.array for each in vectors]

  return run, 0.0


def elmo_embedding(*, sentences: Sequence[Sequence[str]]) -> Program:
  """Makes an embedding of sentences, lists of words, by the original ELMo."""
  device.enable_compilation_cache()
  config = settings.with_overrides(
    settings.load_config(ELMO), {'model.dtype': 'float32'}
  )
  model = elmo.build_model(config.model, 0)
  ids = np.zeros((1, 1, characters.MAX_CHARACTERS), np.int32)
  variables = jax.jit(model.init)(jax.random.key(0), ids, np.ones(1, np.int32))
  params = nn.unbox(variables)['params']

  def run() -> list[np.ndarray]:
    return list(elmo_vectors.embed_sentences(model, params, sentences))

  return run, 0.0


def products() -> Program:
  """Makes bare matrix products in float32, the most that XLA reaches."""
  a, b = (jnp.ones(shape) for shape in PRODUCT)
  product = jax.jit(jnp.matmul)

  def run() -> None:
    for _ in range(NUM_PRODUCTS):
      product(a, b).block_until_ready()

  return run, PRODUCTS_FLOPS
