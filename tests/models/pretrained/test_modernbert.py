"""ModernBERT of transformers, read, computed, trained and written."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.pretrained import hugging_face, published

# Layers, width, heads, inner width, local attention, tokens of a row.
SHAPES = [(4, 32, 4, 48, 8, 24), (6, 64, 2, 80, 6, 37), (3, 48, 3, 40, 128, 16)]
VOCAB_SIZE = 150


def make(torch, shape, kind='ModernBertForMaskedLM', **options):
  """Returns a drawn model of transformers, whose norms are no ones."""
  import transformers

  layers, width, heads, inner, local, _ = shape
  config = transformers.ModernBertConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=width,
    intermediate_size=inner,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    max_position_embeddings=64,
    local_attention=local,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    cls_token_id=1,
    sep_token_id=2,
    attn_implementation='eager',
    **options,
  )
  torch.manual_seed(1)
  model = getattr(transformers, kind)(config).eval()
  with torch.no_grad():
    for name, leaf in model.named_parameters():
      noise = torch.randn(leaf.shape) * (0.2 if 'norm' in name else 0.1)
      leaf += noise
  return model


def rows(shape):
  """Returns ids and mask of three rows, of which two end with padding."""
  rng, length = np.random.default_rng(0), shape[-1]
  lengths = np.array([length, length - 5, 4])
  mask = np.arange(length) < lengths[:, None]
  return np.where(mask, rng.integers(5, VOCAB_SIZE, mask.shape), 0), mask


def run(model, params, tokens, mask, places=None, **options):
  """Returns the outputs; a `mask` of integers numbers the texts of rows."""
  if places is None:
    places = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
  arrays = [jnp.asarray(x, jnp.int32) for x in (0 * places, places, places)]
  return jax.jit(
    lambda params: model.apply(
      {'params': params},
      jnp.asarray(tokens, jnp.int32),
      jnp.asarray(mask),
      *arrays,
      train=False,
      **options,
    )
  )(params)


@pytest.mark.parametrize('scan_layers', [True, False])
@pytest.mark.parametrize(
  ('shape', 'tied'), [*((shape, True) for shape in SHAPES), (SHAPES[0], False)]
)
def test_hidden_states_and_softmax_are_equal(
  torch, shape, tied, scan_layers, tmp_path
):
  theirs = make(torch, shape, tie_word_embeddings=tied)
  theirs.save_pretrained(tmp_path)
  tokens, mask = rows(shape)
  found = theirs(
    input_ids=torch.tensor(tokens),
    attention_mask=torch.tensor(mask.astype(np.int64)),
    output_hidden_states=True,
  )
  weights = published.open_folder(tmp_path)
  weights.check_problems()
  assert weights.model.heads == ('pooler', 'mlm')
  assert weights.model.tied == tied
  model = weights.model.clone(scan_layers=scan_layers, heads=('mlm',))
  outputs = run(model, weights.load(), tokens, mask, all_layers=True)
  for ours, expected in zip(
    outputs['layers'], found.hidden_states, strict=True
  ):
    np.testing.assert_allclose(
      np.asarray(ours)[mask], expected.detach().numpy()[mask], atol=1e-5
    )
  np.testing.assert_allclose(
    np.asarray(outputs['mlm_logits'])[mask][:, :VOCAB_SIZE],
    found.logits.detach().numpy()[mask],
    atol=1e-4,
  )


@pytest.mark.parametrize('shape', SHAPES)
def test_packed_rows_are_equal(torch, shape, tmp_path):
  """Given masks that keep the texts apart, and positions that begin again."""
  theirs = make(torch, shape)
  theirs.save_pretrained(tmp_path)
  length = shape[-1]
  sizes = [1, 5, length // 2], [length - 3, 2, 1]  # the first row is padded
  places = [np.concatenate([*map(np.arange, row)]) for row in sizes]
  texts = [np.repeat([1, 2, 3], row) for row in sizes]
  places, texts = (
    np.stack([np.pad(row, (0, length - len(row))) for row in rows])
    for rows in (places, texts)
  )
  rng = np.random.default_rng(0)
  tokens = np.where(texts, rng.integers(5, VOCAB_SIZE, texts.shape), 0)

  same = texts[:, :, None] == texts[:, None, :]
  distance = abs(np.arange(length)[:, None] - np.arange(length))
  near = same & (distance <= shape[4] // 2)
  masks = {
    kind: torch.where(torch.tensor(seen)[:, None], 0.0, -torch.inf)
    for kind, seen in (('full_attention', same), ('sliding_attention', near))
  }
  weights = published.open_folder(tmp_path)
  model, params = weights.model.clone(heads=()), weights.load()
  packed = run(model, params, tokens, texts, places, all_layers=True)
  for attention in ('eager', 'sdpa'):
    theirs.set_attn_implementation(attention)
    found = theirs(
      torch.tensor(tokens),
      attention_mask=masks,
      position_ids=torch.tensor(places),
      output_hidden_states=True,
    )
    for ours, expected in zip(
      packed['layers'], found.hidden_states, strict=True
    ):
      np.testing.assert_allclose(
        np.asarray(ours)[texts > 0],
        expected.detach().numpy()[texts > 0],
        atol=1e-5,
      )

  alone = np.zeros((6, length), np.int32)
  mask = np.arange(length) < np.ravel(sizes)[:, None]
  alone[mask] = tokens[texts > 0]
  expected = np.asarray(run(model, params, alone, mask)['hidden'])[mask]
  np.testing.assert_allclose(
    np.asarray(packed['hidden'])[texts > 0],
    expected,
    rtol=1e-6,
    atol=1e-6 * np.abs(expected).max(),
  )


def test_gradients_are_equal(torch, tmp_path):
  shape = SHAPES[1]
  theirs = make(torch, shape)
  theirs.save_pretrained(tmp_path)
  tokens, mask = rows(shape)
  logits = theirs(
    input_ids=torch.tensor(tokens),
    attention_mask=torch.tensor(mask.astype(np.int64)),
  ).logits
  chosen = torch.tensor(mask)
  loss = torch.nn.functional.cross_entropy(
    logits[chosen], torch.tensor(tokens)[chosen]
  )
  loss.backward()
  weights = published.open_folder(tmp_path)
  model, params = weights.model.clone(heads=('mlm',)), weights.load()

  def loss_of(params):
    logits = run(model, params, tokens, mask)['mlm_logits'][..., :VOCAB_SIZE]
    found = jax.nn.log_softmax(logits)
    at = jnp.take_along_axis(found, jnp.asarray(tokens)[..., None], -1)[..., 0]
    return -jnp.sum(jnp.where(mask, at, 0)) / mask.sum()

  ours_loss, gradient = jax.value_and_grad(loss_of)(params)
  assert ours_loss == pytest.approx(loss.item(), abs=1e-5)
  expected = {
    name.removeprefix('model.'): leaf.grad.numpy()
    for name, leaf in theirs.named_parameters()
  }
  of_layers = gradient['layers']
  for i in range(shape[0]):
    for ours, name in (
      (of_layers['mlp']['in']['kernel'][i], 'mlp.Wi'),
      (of_layers['attention']['qkv']['kernel'][i], 'attn.Wqkv'),
      (of_layers['mlp']['out']['kernel'][i], 'mlp.Wo'),
    ):
      there = expected[f'layers.{i}.{name}.weight']
      np.testing.assert_allclose(
        np.asarray(ours).reshape(there.T.shape), there.T, atol=1e-5
      )
    if i:
      np.testing.assert_allclose(
        of_layers['attention_norm']['scale'][i],
        expected[f'layers.{i}.attn_norm.weight'],
        atol=1e-5,
      )
  assert not np.any(of_layers['attention_norm']['scale'][0])
  np.testing.assert_allclose(
    gradient['embeddings']['tokens']['embedding'][:VOCAB_SIZE],
    expected['embeddings.tok_embeddings.weight'],
    atol=1e-5,
  )


@pytest.mark.parametrize(
  ('pooling', 'activation'),
  [('cls', 'gelu'), ('mean', 'relu'), ('mean', 'gelu_pytorch_tanh')],
)
def test_a_classifier_is_read_and_written(torch, pooling, activation, tmp_path):
  import transformers

  theirs = make(
    torch,
    SHAPES[0],
    'ModernBertForSequenceClassification',
    num_labels=3,
    classifier_pooling=pooling,
    classifier_activation=activation,
    hidden_activation=activation,
  )
  theirs.save_pretrained(tmp_path / 'there')
  tokens, mask = rows(SHAPES[0])
  inputs = {
    'input_ids': torch.tensor(tokens),
    'attention_mask': torch.tensor(mask.astype(np.int64)),
  }
  expected = theirs(**inputs).logits.detach().numpy()
  weights = published.open_folder(tmp_path / 'there')
  weights.check_problems()
  params = weights.load()
  pooled = run(weights.model, params, tokens, mask)['pooled']
  head = params['classifier']
  np.testing.assert_allclose(
    pooled @ head['kernel'] + head['bias'], expected, atol=1e-5
  )
  hugging_face.write_folder(tmp_path / 'here', weights.model, params)
  again = transformers.AutoModelForSequenceClassification.from_pretrained(
    tmp_path / 'here', attn_implementation='eager'
  )
  np.testing.assert_allclose(
    again(**inputs).logits.detach().numpy(), expected, atol=1e-6
  )


@pytest.mark.parametrize(
  ('is_old', 'tied'), [(False, True), (True, True), (False, False)]
)
def test_a_masked_model_is_written_as_it_was_read(
  torch, is_old, tied, tmp_path
):
  import transformers

  theirs = make(torch, SHAPES[1], tie_word_embeddings=tied)
  theirs.save_pretrained(tmp_path / 'there')
  file = tmp_path / 'there/config.json'
  if is_old:  # of version 4
    config = json.loads(file.read_text())
    del config['layer_types'], config['rope_parameters']
    config |= {'global_attn_every_n_layers': 3, 'global_rope_theta': 160_000.0}
    file.write_text(json.dumps(config))
  weights = published.open_folder(tmp_path / 'there')
  hugging_face.write_folder(tmp_path / 'here', weights.model, weights.load())
  again = transformers.AutoModelForMaskedLM.from_pretrained(
    tmp_path / 'here', attn_implementation='eager'
  )
  assert type(again).__name__ == 'ModernBertForMaskedLM'
  for name, leaf in theirs.state_dict().items():
    assert torch.equal(leaf, again.state_dict()[name]), name
  tokens, _ = rows(SHAPES[1])
  assert torch.equal(
    theirs(torch.tensor(tokens)).logits, again(torch.tensor(tokens)).logits
  )


@pytest.mark.parametrize(
  ('changes', 'problem'),
  [
    ({'layer_types': ['full_attention'] * 3 + ['x']}, 'layer_types is'),
    ({'norm_bias': True}, 'norm_bias is True, only False is known here'),
    ({'hidden_activation': 'silu'}, "hidden_activation is 'silu', expected"),
    ({'local_attention': 'all'}, "local_attention is 'all', expected a count"),
    ({'local_attention': 1}, 'local_attention is 1, expected a count of 2 or'),
    (
      {'classifier_activation': 'silu'},
      "classifier_activation is 'silu', expected that of the layers, hidden",
    ),
    (
      {'hidden_activation': 'gelu_pytorch_tanh'},
      "classifier_activation is 'gelu', expected that of the layers, hidden",
    ),
    (
      {'classifier_pooling': 'max'},
      "classifier_pooling is 'max', expected one of ['cls', 'mean']",
    ),
    (
      {'rope_parameters': {'full_attention': {'rope_type': 'yarn'}}},
      "rope_type is 'yarn', only 'default' is known here",
    ),
    ({'hidden_size': 31}, 'hidden_size is 31, expected a multiple of'),
  ],
)
def test_another_config_is_refused(torch, changes, problem, tmp_path):
  make(torch, SHAPES[0]).save_pretrained(tmp_path)
  file = tmp_path / 'config.json'
  file.write_text(json.dumps(json.loads(file.read_text()) | changes))
  found = published.open_folder(tmp_path)
  assert any(problem in line for line in found.problems), found.problems


def test_a_model_without_windows_is_written(torch, tmp_path):
  import transformers

  make(torch, SHAPES[1]).save_pretrained(tmp_path / 'there')
  weights = published.open_folder(tmp_path / 'there')
  model, params = weights.model.clone(window=0), weights.load()
  hugging_face.write_folder(tmp_path / 'here', model, params)
  theirs = transformers.AutoModelForMaskedLM.from_pretrained(
    tmp_path / 'here', attn_implementation='eager'
  ).eval()
  tokens, _ = rows(SHAPES[1])
  ours = run(model, params, tokens, tokens >= 0)['mlm_logits']
  with torch.no_grad():
    expected = theirs(torch.tensor(tokens)).logits.numpy()
  np.testing.assert_allclose(ours[..., :VOCAB_SIZE], expected, atol=1e-4)
  # A window would change what it computes.
  narrow = run(weights.model, params, tokens, tokens >= 0)['mlm_logits']
  assert np.abs(narrow - ours).max() > 1e-2


def test_a_form_between_is_not_written(torch, tmp_path):
  make(torch, SHAPES[0]).save_pretrained(tmp_path / 'there')
  weights = published.open_folder(tmp_path / 'there')
  model = weights.model.clone(query_key_norm=True)
  with pytest.raises(ValueError, match=r'model\.query_key_norm=True.*no class'):
    hugging_face.write_folder(tmp_path / 'here', model, weights.load())
  assert not (tmp_path / 'here').exists()
