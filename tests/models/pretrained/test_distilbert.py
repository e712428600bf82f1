"""DistilBERT of transformers, read and written as a BERT."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.pretrained import hugging_face, published

VOCAB_SIZE, LENGTH = 90, 11


def make(torch, kind, **options):
  import transformers

  config = transformers.DistilBertConfig(
    vocab_size=VOCAB_SIZE,
    dim=32,
    hidden_dim=40,
    n_layers=3,
    n_heads=4,
    max_position_embeddings=16,
    **options,
  )
  torch.manual_seed(0)
  model = getattr(transformers, f'DistilBert{kind}')(config).eval()
  with torch.no_grad():
    for leaf in model.parameters():
      leaf += 0.1 * torch.randn(leaf.shape)
  return model


def rows():
  rng = np.random.default_rng(0)
  mask = np.arange(LENGTH) < np.array([[LENGTH], [6]])
  return np.where(mask, rng.integers(1, VOCAB_SIZE, mask.shape), 0), mask


def run(weights):
  tokens, mask = rows()
  places = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
  return jax.jit(
    lambda params: weights.model.apply(
      {'params': {k: v for k, v in params.items() if k not in weights.heads}},
      jnp.asarray(tokens),
      jnp.asarray(mask),
      jnp.ones_like(places),  # of types, which there are none
      places,
      places,
      train=False,
    )
  )(weights.load())


def theirs(torch, model):
  tokens, mask = rows()
  return model(
    input_ids=torch.tensor(tokens),
    attention_mask=torch.tensor(mask.astype(np.int64)),
  )


@pytest.mark.parametrize(
  ('activation', 'tied'), [('gelu', True), ('relu', True), ('gelu', False)]
)
def test_a_masked_model_is_equal(torch, activation, tied, tmp_path):
  import transformers

  options = {'activation': activation, 'tie_word_embeddings': tied}
  model = make(torch, 'ForMaskedLM', **options)
  model.save_pretrained(tmp_path / 'there')
  weights = published.open_folder(tmp_path / 'there')
  weights.check_problems()
  assert weights.model.heads == ('mlm',) and weights.model.tied == tied
  _, mask = rows()
  expected = theirs(torch, model).logits.detach().numpy()[mask]
  found = np.asarray(run(weights)['mlm_logits'])[mask][:, :VOCAB_SIZE]
  np.testing.assert_allclose(found, expected, atol=1e-5)
  hugging_face.write_folder(tmp_path / 'here', weights.model, weights.load())
  again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / 'here')
  np.testing.assert_allclose(
    theirs(torch, again.eval()).logits.detach().numpy()[mask], found, atol=1e-5
  )


@pytest.mark.parametrize(
  ('kind', 'head', 'aside'),
  [
    ('Model', None, 0),
    ('ForSequenceClassification', None, 4),
    ('ForTokenClassification', 'token_classifier', 0),
    ('ForQuestionAnswering', 'span_classifier', 0),
  ],
)
def test_other_heads_are_read_or_set_aside(torch, kind, head, aside, tmp_path):
  model = make(torch, kind)
  model.save_pretrained(tmp_path)
  weights = published.open_folder(tmp_path)
  weights.check_problems()
  assert weights.heads == ((head,) if head else ())
  assert len(weights.set_aside) == aside
  body = model if kind == 'Model' else model.distilbert
  expected = theirs(torch, body).last_hidden_state.detach().numpy()
  _, mask = rows()
  np.testing.assert_allclose(
    np.asarray(run(weights)['hidden'])[mask], expected[mask], atol=1e-5
  )


def test_sinusoids_of_a_config_change_nothing_and_no_size_is_guessed(
  torch, tmp_path
):
  make(torch, 'Model', sinusoidal_pos_embds=True).save_pretrained(tmp_path)
  published.open_folder(tmp_path).check_problems()
  file = tmp_path / 'config.json'
  file.write_text(file.read_text().replace('"dim": 32', '"dims": 32'))
  (problem, *_) = published.open_folder(tmp_path).problems
  assert problem.startswith('dim is missing, expected a count')
