import bert_cases
import gpt_cases
import jax
import numpy as np
import optax
import pytest
from flax import linen as nn

from models.pretrained import gpt as pretrained


def torch_inputs(torch, batch):
  labels = np.where(batch['token_mask'], batch['tokens'], -100)
  return {
    name: torch.tensor(np.asarray(value, np.int64))
    for name, value in (
      ('input_ids', batch['tokens']),
      ('attention_mask', batch['token_mask']),
      ('position_ids', batch['positions']),
      ('labels', labels),  # shifted over there
    )
  }


def weights_of(reference, model, gradients=False):
  """Returns PyTorch's parameters, or their gradients, as a tree like ours."""
  arrays = {
    name: (p.grad if gradients else p).detach().numpy().copy()
    for name, p in reference.named_parameters()
  }
  return gpt_cases.open_arrays(arrays, model).load()


def hidden_of_blocks(reference):
  """Records each block's output: GPT-2 only shows its last one normalised."""
  found = []
  for block in reference.transformer.h:
    block.register_forward_hook(
      lambda _, __, out: found.append(
        (out if hasattr(out, 'shape') else out[0]).detach().numpy().copy()
      )
    )
  return found


@pytest.mark.parametrize(
  'sizes, pre_norm, scan_layers',
  [
    (gpt_cases.TINY, False, True),
    (gpt_cases.TINY, True, True),
    (gpt_cases.BASE_WIDTH, True, False),
  ],
  ids=['gpt-tiny', 'gpt2-tiny', 'gpt2-base'],
)
def test_equals_hugging_face(
  torch, make_gpt_reference, sizes, pre_norm, scan_layers
):
  reference = make_gpt_reference(sizes, gpt_cases.VOCAB_SIZE, pre_norm)
  hidden = hidden_of_blocks(reference)
  batch = gpt_cases.make_batch()
  mask = batch['token_mask']
  expected = reference(
    **torch_inputs(torch, batch),
    output_hidden_states=True,
    output_attentions=True,
  )
  expected.loss.backward()

  model = gpt_cases.make_model(
    sizes, pre_norm=pre_norm, scan_layers=scan_layers
  )
  params = weights_of(reference, model)
  outputs, sown, loss, gradient = jax.device_get(
    gpt_cases.run(model, params, batch, sow=True)
  )

  theirs = {
    'embedded': expected.hidden_states[0].detach().numpy(),
    'final': expected.hidden_states[-1].detach().numpy(),
  }
  ours = {'embedded': sown['embedded'][0], 'final': outputs['hidden']}
  assert len(hidden) == 2
  for i in range(2):
    ours[f'layer {i}'] = sown['layers']['hidden'][0][i]
    theirs[f'layer {i}'] = hidden[i]
    attention = sown['layers']['attention']['attention'][0][i]
    reference_attention = expected.attentions[i].detach().numpy()
    np.testing.assert_allclose(
      np.moveaxis(attention, 1, 2)[mask],
      np.moveaxis(reference_attention, 1, 2)[mask],
      atol=1e-5,
    )
  errors = {
    name: np.abs(np.asarray(ours[name])[mask] - theirs[name][mask]).max()
    for name in ours
  }
  assert max(errors.values()) < 1e-5, errors

  logits = np.asarray(outputs['lm_logits'])
  assert logits.shape[-1] == 1024
  expected_logits = expected.logits.detach().numpy()
  errors['logits'] = np.abs(
    logits[mask][:, : gpt_cases.VOCAB_SIZE] - expected_logits[mask]
  ).max()
  errors['loss'] = abs(float(loss) - expected.loss.item())
  assert max(errors.values()) < 1e-4, errors

  gradients = bert_cases.relative_errors(
    gradient, weights_of(reference, model, gradients=True)
  )
  print({k: f'{v:.1e}' for k, v in errors.items()})
  print(f'gradient {max(gradients.values()):.1e} of {len(gradients)}')
  assert max(gradients.values()) < 1e-4, gradients


@pytest.mark.slow
@pytest.mark.parametrize('pre_norm', [False, True], ids=['gpt', 'gpt2'])
def test_twenty_steps_equal_pytorch(torch, make_gpt_reference, pre_norm):
  rate, momentum = 0.1, 0.9
  sizes = gpt_cases.TINY
  reference = make_gpt_reference(sizes, gpt_cases.VOCAB_SIZE, pre_norm)
  theirs = torch.optim.SGD(reference.parameters(), rate, momentum)
  model = gpt_cases.make_model(sizes, pre_norm=pre_norm)
  params = weights_of(reference, model)
  tx = optax.sgd(rate, momentum)

  @jax.jit
  def step(params, opt_state, batch):
    _, _, loss, gradient = gpt_cases.run(model, params, batch)
    updates, opt_state = tx.update(gradient, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss

  opt_state = jax.jit(tx.init)(params)
  losses, errors = [], []
  for i in range(20):
    batch = gpt_cases.make_batch(seed=i % 4)
    theirs.zero_grad()
    loss = reference(**torch_inputs(torch, batch)).loss
    loss.backward()
    theirs.step()
    params, opt_state, ours = step(params, opt_state, batch)
    losses.append(float(ours))
    errors.append(abs(float(ours) - loss.item()))
  print(f'largest error {max(errors):.1e}, losses {losses[0]} {losses[-1]}')
  assert max(errors) < 1e-4, errors
  assert losses[-1] < losses[0] - 0.3, losses  # something was learnt
  table = params['embeddings']['tokens']['embedding']
  assert (table[gpt_cases.VOCAB_SIZE :] == 0).all()


# Names


@pytest.mark.parametrize('pre_norm', [False, True], ids=['gpt', 'gpt2'])
def test_weights_go_there_and_back(torch, make_gpt_reference, pre_norm):
  del torch
  reference = make_gpt_reference(gpt_cases.TINY, gpt_cases.VOCAB_SIZE, pre_norm)
  model = gpt_cases.make_model(pre_norm=pre_norm)
  arrays = {k: v.detach().numpy() for k, v in reference.state_dict().items()}
  params = gpt_cases.open_arrays(arrays, model).load()
  shapes = nn.meta.unbox(
    gpt_cases.abstract_params(
      vocab_size=gpt_cases.VOCAB_SIZE,
      max_length=64,
      pre_norm=pre_norm,
      **gpt_cases.TINY,
    )
  )
  kinds = [
    jax.tree.map(lambda x: (x.shape, x.dtype), t) for t in (params, shapes)
  ]
  assert kinds[0] == kinds[1]
  _, back = pretrained.to_hugging_face(params, model)
  assert back.keys() == arrays.keys() - {'lm_head.weight'}
  for name, array in back.items():
    np.testing.assert_array_equal(array, arrays[name], err_msg=name)
  # As the published files have them: no prefix, no head, masks of old.
  published = {
    k.removeprefix('transformer.'): v
    for k, v in arrays.items()
    if k != 'lm_head.weight'
  }
  published['h.0.attn.bias'] = np.tril(np.ones((1, 1, 64, 64), np.float32))
  again = gpt_cases.open_arrays(published, model).load()
  jax.tree.map(np.testing.assert_array_equal, again, params)


def test_weights_that_do_not_fit_are_refused():
  model = gpt_cases.make_model(pre_norm=True)
  _, arrays = pretrained.to_hugging_face(gpt_cases.init_params(True), model)
  wrong = dict(arrays)
  del wrong['transformer.h.1.ln_2.bias']
  wrong['transformer.h.2.ln_2.bias'] = np.zeros(128)
  wrong['transformer.wpe.weight'] = np.zeros((63, 128))
  with pytest.raises(ValueError) as error:
    gpt_cases.open_arrays(wrong, model).load()
  for problem in (
    r'missing: h.1.ln_2.bias (128,)',
    r'not known: h.2.ln_2.bias (128,)',
    r'another shape: wpe.weight is (63, 128), expected (64, 128)',
  ):
    assert problem in str(error.value)
  untied = arrays | {'lm_head.weight': arrays['transformer.wte.weight'] + 1}
  with pytest.raises(ValueError, match='lm_head.weight differs'):
    gpt_cases.open_arrays(untied, model).load()
