"""Model FLOPs: of shipped configs, of programs, of encoders below a head."""

import functools

import bert_cases
import gpt_cases
import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from configs import variants
from data.store import build
from models import bert, elmo, gpt, lstm_lm
from train.architectures import families
from train.architectures.architecture import Vocabulary
from train.engine import flops, sharding
from train.pretrain import assemble
from train.run import settings, training_phases

NAMES = {
  bert.Bert: 'bert',
  gpt.Gpt: 'gpt',
  lstm_lm.LstmLm: 'lstm',
  elmo.Elmo: 'elmo',
}
V = 30_522  # 70 rows of padding


def step_flops(name, vocab_size=V, **overrides):
  config = settings.with_overrides(settings.load_config(name), overrides)
  phases = training_phases.check_phases(config)
  mesh = sharding.make_mesh(config.mesh)
  job = assemble.build_parts(
    config, phases, Vocabulary.of_size(vocab_size), mesh
  )
  return job.step_flops(phases[0]), job.num_parameters


@pytest.mark.parametrize(
  'name, overrides, expected, count',
  # 3 x 2 x m k n of all products, by hand: for bert_tiny 32 rows of 128 tokens
  # of which 20 are predicted, 2 layers of 128, V = 30,522.
  [
    (
      'bert_tiny',
      {},
      3 * 2 * 32 * 128 * 2 * (128 * (4 * 128 + 2 * 512) + 2 * 128 * 128)
      + 3 * 2 * 32 * (20 * 128 * (128 + V) + 128 * (128 + 2)),
      4_384_316,
    ),
    ('bert_tiny', {'train.objective': 'mlm'}, 26_339_377_152, 4_367_546),
    (
      'bert_tiny',
      {'train.objective': 'lm', 'model.left_to_right': True},
      107_690_852_352,
      4_367_546,
    ),
    ('bert_base', {}, 17_901_821_362_176, 110_106_428),
    ('gpt', {}, 23_162_926_399_488, 108_888_576),
    ('gpt2', {}, 400_293_636_341_760, 109_283_328),
    ('gpt:lstm', {}, 7_391_806_488_576, 37_604_864),
    ('elmo_1b', {}, 6_320_129_310_720, 109_258_634),
    ('elmo_tiny', {'model.num_samples': 0}, 24_352_849_920, 2_746_954),
    ('elmo_tiny', {'model.characters': False}, 2_768_732_160, 4_531_258),
  ],
)
def test_steps_of_shipped_configs(name, overrides, expected, count):
  assert step_flops(name, **overrides) == (expected, count)


@pytest.mark.parametrize(
  'name, size, published',
  [
    ('bert_multilingual', 119_547, 177_853_440),
    ('bert_chinese', 21_128, 102_267_648),
  ],
)
def test_other_vocabularies_have_the_published_parameters(
  name, size, published
):
  tokenizer = settings.load_config(name).data.tokenizer
  assert build.trained_size(tokenizer) == size
  # The published count is without the heads.
  heads = 768 * 768 + 3 * 768 + size + 2 * 769
  flops, count = step_flops(name, vocab_size=size)
  assert count == published + heads
  more = 6 * 256 * 20 * 768 * (size - V)
  assert flops == 17_901_821_362_176 + more


def test_ernie_has_the_published_parameters():
  config = settings.load_config('ernie_base')
  size = build.trained_size(config.data.tokenizer)
  assert size == 18_000
  # ernie_config.json: tables of tokens, positions and two segments, 12 layers,
  # the pooler; besides them the heads.
  published = 768 * (18_000 + 513 + 2 + 2) + 12 * 7_087_872 + 768 * 769
  heads = 768 * 768 + 3 * 768 + size + 2 * 769
  assert step_flops('ernie_base', vocab_size=size)[1] == published + heads


@pytest.mark.parametrize(
  'encoder, rows, length, expected',
  [
    (
      bert.Bert(vocab_size=V, **variants.BERT['bert-base']),
      32,
      77,
      425_552_117_760,
    ),
    (
      gpt.Gpt(vocab_size=40_481, **variants.GPT['gpt']),
      96,
      60,
      991_187_435_520,
    ),
    (
      lstm_lm.LstmLm(vocab_size=40_481, embed_dim=768, lstm_dim=2048),
      32,
      100,
      90_596_966_400,
    ),
    (
      elmo.Elmo(vocab_size=0, **variants.ELMO['elmo']),
      32,
      41,
      198_105_366_528,
    ),
  ],
)
def test_encoders_count_without_heads(encoder, rows, length, expected):
  family = families.ARCHITECTURES[NAMES[type(encoder)]]
  assert family.encoder_flops(encoder, rows, length) == expected


@pytest.mark.parametrize('scan_layers', [True, False])
@pytest.mark.parametrize('cases', [bert_cases, gpt_cases])
def test_a_step_has_three_times_the_forward(cases, scan_layers):
  rows, length, vocab_size = 8, 128, 1024  # without padding
  batch = jax.eval_shape(
    functools.partial(cases.make_batch, lengths=(length,) * rows, T=length)
  )
  model = cases.make_model(
    vocab_size=vocab_size, max_length=length, scan_layers=scan_layers
  )
  inputs = tuple(
    jax.ShapeDtypeStruct(batch[name].shape, batch[name].dtype)
    for name in cases.INPUTS
  )
  params = nn.unbox(
    jax.eval_shape(
      functools.partial(model.init, train=False), jax.random.key(0), *inputs
    )
  )['params']

  def count(model):
    program = jax.make_jaxpr(functools.partial(cases.run, model))
    return flops._count_products(program(params, batch).jaxpr)

  counted = functools.partial(
    flops.forward, inputs=inputs, vocab_size=vocab_size, train=True
  )
  # The backward pass computes the attention's scores again.
  again = 2 * model.num_layers * rows * length**2 * model.embed_dim
  assert count(model) == 3 * counted(model) + again
  less = model.clone(remat=True)
  assert counted(less) == counted(model)
  if scan_layers:
    assert count(less) > count(model)
  # Nor does the kernel's way to compute it.
  assert counted(model.clone(attention='suited')) == counted(model)


def test_each_word_counts_wherever_it_stands():
  model = elmo.Elmo(vocab_size=0, **variants.ELMO['elmo-tiny'])
  ids = jax.ShapeDtypeStruct((3, 5, 50), jnp.int32)
  lengths = jax.ShapeDtypeStruct((3,), jnp.int32)
  words = jax.ShapeDtypeStruct((3, 5, 64), jnp.float32)
  whole = flops.forward(model, (ids, lengths), vocab_size=0)
  layers = flops.forward(model, (words, lengths), vocab_size=0, method='embed')
  filters = model.filters
  count = sum(number for _, number in filters)
  word = sum((51 - width) * width * 16 * number for width, number in filters)
  word += 2 * count * count + count * 64
  assert whole - layers == 2 * 3 * 5 * word
