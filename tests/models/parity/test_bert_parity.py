import bert_cases
import jax
import numpy as np
import optax
import pytest

from configs import base
from train.engine import optim


def torch_inputs(torch, batch):
  rows = np.arange(len(batch['tokens']))[:, None]
  labels = np.full(batch['tokens'].shape, -100)
  weighted = np.where(batch['mlm_weights'] > 0, batch['mlm_targets'], -100)
  labels[rows, batch['mlm_positions']] = weighted
  return {
    name: torch.tensor(np.asarray(value, np.int64))
    for name, value in (
      ('input_ids', batch['tokens']),
      ('attention_mask', batch['token_mask']),
      ('token_type_ids', batch['token_types']),
      ('position_ids', batch['positions']),
      ('labels', labels),
      ('next_sentence_label', batch['nsp_labels']),
    )
  }


def torch_losses(torch, outputs, inputs):
  cross_entropy = torch.nn.functional.cross_entropy
  mlm = cross_entropy(
    outputs.prediction_logits.flatten(0, 1), inputs['labels'].flatten()
  )
  nsp = cross_entropy(
    outputs.seq_relationship_logits, inputs['next_sentence_label']
  )
  return {'mlm': mlm, 'nsp': nsp}


@pytest.mark.parametrize(
  'sizes, gelu, scan_layers',
  [
    (bert_cases.TINY, 'erf', True),
    (bert_cases.TINY, 'tanh', True),
    (bert_cases.TINY, 'relu', True),
    (bert_cases.TINY, 'erf', False),
    (bert_cases.TINY, 'tanh', False),
    (bert_cases.BASE_WIDTH, 'erf', True),
  ],
  ids=lambda value: value['embed_dim'] if isinstance(value, dict) else None,
)
def test_equals_hugging_face(torch, make_reference, sizes, gelu, scan_layers):
  reference = make_reference(sizes, bert_cases.VOCAB_SIZE, gelu)
  batch = bert_cases.make_batch()
  inputs = torch_inputs(torch, batch)
  expected = reference.model(
    **inputs, output_hidden_states=True, output_attentions=True
  )
  expected_losses = torch_losses(torch, expected, inputs)
  expected.loss.backward()

  model = bert_cases.make_model(
    sizes, gelu=gelu, scan_layers=scan_layers, max_length=512
  )
  params = reference.params()
  outputs, sown, losses, gradient = jax.device_get(
    bert_cases.run(model, params, batch, sow=True)
  )

  hidden = [x.detach().numpy() for x in expected.hidden_states]
  assert len(hidden) == 3
  errors = {'embedded': np.abs(sown['embedded'][0] - hidden[0]).max()}
  for i in range(2):
    ours = sown['layers']['hidden'][0][i]
    errors[f'layer {i}'] = np.abs(ours - hidden[i + 1]).max()
    np.testing.assert_allclose(
      sown['layers']['attention']['attention'][0][i],
      expected.attentions[i].detach().numpy(),
      atol=1e-5,
    )
  assert max(errors.values()) < 1e-5, errors
  bert_cases.assert_close(outputs['hidden'], hidden[-1], 1e-5)

  rows = np.arange(len(batch['tokens']))[:, None]
  logits = expected.prediction_logits.detach().numpy()
  logits = logits[rows, batch['mlm_positions']]
  assert outputs['mlm_logits'].shape[-1] == 1024
  errors['mlm'] = np.abs(
    outputs['mlm_logits'][..., : bert_cases.VOCAB_SIZE] - logits
  ).max()
  nsp = expected.seq_relationship_logits.detach().numpy()
  errors['nsp'] = np.abs(outputs['nsp_logits'] - nsp).max()
  for name, value in losses.items():
    errors[f'{name} loss'] = abs(float(value) - expected_losses[name].item())
  assert max(errors.values()) < 1e-4, errors

  gradients = bert_cases.relative_errors(
    gradient, reference.params(gradients=True)
  )
  print({k: f'{v:.1e}' for k, v in errors.items()})
  print(f'gradient {max(gradients.values()):.1e} of {len(gradients)}')
  assert max(gradients.values()) < 1e-4, gradients


class TorchBertAdam:
  """BERT's optimiser, written for PyTorch from the release's description."""

  def __init__(self, torch, named_parameters, config, num_steps):
    self.torch, self.config, self.num_steps = torch, config, num_steps
    self.parameters = dict(named_parameters)
    zeros = {k: torch.zeros_like(p) for k, p in self.parameters.items()}
    self.m = zeros
    self.v = {k: v.clone() for k, v in zeros.items()}

  def rate(self, step):
    c = self.config
    if step < c.warmup_steps:
      return c.learning_rate * step / c.warmup_steps
    return c.learning_rate * (1 - step / self.num_steps)

  def update(self, step):
    c = self.config
    with self.torch.no_grad():
      norm = sum((p.grad**2).sum() for p in self.parameters.values()) ** 0.5
      scale = c.clip_norm / max(float(norm), c.clip_norm)
      for name, p in self.parameters.items():
        g = p.grad * scale
        m, v = self.m[name], self.v[name]
        m.mul_(c.beta1).add_((1 - c.beta1) * g)
        v.mul_(c.beta2).add_((1 - c.beta2) * g * g)
        update = m / (v.sqrt() + c.epsilon)
        if 'LayerNorm' not in name and 'bias' not in name:
          update = update + c.weight_decay * p
        p -= self.rate(step) * update
        p.grad = None
    return float(norm)


@pytest.mark.parametrize(
  'sizes, gelu, scan_layers',
  [
    (bert_cases.TINY, 'tanh', True),
    pytest.param(bert_cases.BASE_WIDTH, 'erf', False, marks=pytest.mark.slow),
  ],
  ids=lambda value: value['embed_dim'] if isinstance(value, dict) else None,
)
def test_twenty_steps_equal_pytorch(
  torch, make_reference, sizes, gelu, scan_layers
):
  num_steps = 20
  reference = make_reference(sizes, bert_cases.VOCAB_SIZE, gelu)
  config = base.get_config().optim
  config.update(learning_rate=3e-4, warmup_steps=5)
  theirs = TorchBertAdam(
    torch, reference.model.named_parameters(), config, num_steps
  )
  model = bert_cases.make_model(
    sizes, gelu=gelu, scan_layers=scan_layers, max_length=512
  )
  params = reference.params()
  tx = optim.make_optimizer(
    config, optim.make_schedule(config, ((num_steps, 37, 4, 'continue'),))
  )

  @jax.jit
  def step(params, opt_state, batch):
    def loss(params):
      outputs = model.apply(
        {'params': params}, *[batch[k] for k in bert_cases.INPUTS], train=False
      )
      return sum(bert_cases.losses_of(outputs, batch).values())

    value, gradient = jax.value_and_grad(loss)(params)
    updates, opt_state = tx.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value

  opt_state = jax.jit(tx.init)(params)
  first, losses, errors, norms = params, [], [], []
  for i in range(num_steps):
    batch = bert_cases.make_batch(seed=i % 4)
    loss = reference.model(**torch_inputs(torch, batch)).loss
    loss.backward()
    norms.append(theirs.update(i))
    params, opt_state, ours = step(params, opt_state, batch)
    losses.append(float(ours))
    errors.append(abs(float(ours) - loss.item()))
  print(f'largest error {max(errors):.1e}, losses {losses[0]} {losses[-1]}')
  assert max(errors) < 1e-4, errors
  assert losses[-1] < losses[0] - 1, losses  # something was learnt
  assert max(norms) > config.clip_norm  # the clipping was at work
  params = jax.device_get(params)
  # Padding stays what it was: neither gradient nor decay moves a zero.
  assert (
    params['embeddings']['tokens']['embedding'][bert_cases.VOCAB_SIZE :] == 0
  ).all()
  assert (params['mlm']['bias'][bert_cases.VOCAB_SIZE :] == 0).all()
  assert jax.tree.structure(first) == jax.tree.structure(params)
