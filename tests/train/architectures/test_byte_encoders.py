"""Encoders with a byte-level vocabulary: every use of published folders."""

import json

import encoder_folders
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_kinds
import small_tasks

from data.vocabulary import tokenization
from train import fill_mask
from train.engine import state
from train.exports import folders
from train.language import sentence_sums
from train.params import convert, opened
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

KINDS = tuple(encoder_folders.MAKERS)
TEXTS = [
  'the cat sat on the mat',
  ' Two  spaces, and a café: it is old.',
  'A function returns one string or another, or none of the strings.',
]


@pytest.fixture(scope='module', params=KINDS)
def made(request, torch, tmp_path_factory):
  """A folder with a masked model, its model and its tokenizer."""
  folder = tmp_path_factory.mktemp(request.param)
  return folder, *encoder_folders.write_model(folder, request.param)


def logits_of(torch, model, ids):
  with torch.no_grad():
    return model(input_ids=torch.tensor([ids])).logits[0].numpy()


def ours_of(found, ids):
  """Returns the logits of one row, at all places."""
  ids = jnp.asarray([ids])
  places = jnp.arange(ids.shape[1])[None]
  outputs = jax.jit(
    lambda params: found.model.apply(
      {'params': params},
      ids,
      jnp.ones(ids.shape, bool),
      jnp.zeros_like(ids),
      places,
      places,
      train=False,
    )
  )(found.load())
  return np.asarray(outputs['mlm_logits'])[0, :, : found.model.vocab_size]


def test_vectors_of_texts_are_equal(torch, made):
  """Of texts of all lengths at once, so that padding stands beside them."""
  folder, theirs, tokenizer = made
  found = TrainedModel(folder)
  texts = [*TEXTS, 'x', 'mat ' * 24]
  vectors = list(found.vectors(texts, Request('token')))
  for text, vector in zip(texts, vectors, strict=True):
    ids = tokenizer(text)['input_ids']
    with torch.no_grad():
      expected = theirs.base_model(input_ids=torch.tensor([ids]))
    np.testing.assert_allclose(
      vector.array, expected.last_hidden_state[0, 1:-1].numpy(), atol=1e-4
    )


def test_masks_are_filled_as_by_the_pipeline(made, run_command):
  import transformers

  folder, theirs, tokenizer = made
  mask = tokenizer.mask_token
  prompts = [f'The {mask} sat on the mat.', f'{mask} cat {mask}{mask} café']
  pipeline = transformers.pipeline(
    'fill-mask', model=theirs, tokenizer=tokenizer, top_k=5
  )
  printed = run_command(fill_mask, folder, *prompts, '--json')
  ours = [json.loads(line) for line in printed.out.splitlines()]
  for record, expected in zip(ours, pipeline(prompts), strict=True):
    masks = expected if isinstance(expected[0], list) else [expected]
    for guesses, wanted in zip(record['masks'], masks, strict=True):
      assert [g['id'] for g in guesses] == [x['token'] for x in wanted]
      np.testing.assert_allclose(
        [g['probability'] for g in guesses],
        [x['score'] for x in wanted],
        rtol=1e-4,
      )


def test_pseudo_log_likelihoods_are_equal(torch, made):
  folder, theirs, tokenizer = made
  found = TrainedModel(folder, use='fill_masks')
  texts = TEXTS[:1]
  scores, counts = sentence_sums.score(found, texts)
  for text, score, count in zip(texts, scores, counts, strict=True):
    ids = tokenizer(text)['input_ids']
    expected = 0.0
    for place in range(1, len(ids) - 1):
      hidden = [*ids]
      hidden[place] = tokenizer.mask_token_id
      logits = torch.tensor(logits_of(torch, theirs, hidden)[place])
      expected += float(logits.log_softmax(-1)[ids[place]])
    assert count == len(ids) - 2
    assert score == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize('by_workdir', [False, True])
def test_transformers_opens_an_export(torch, made, by_workdir, tmp_path):
  import transformers

  source, model, tokenizer = made
  weights = source
  if by_workdir:
    weights = tmp_path / 'workdir'
    convert.import_(source, weights)
  folders.export(weights, tmp_path / 'out')
  theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / 'out')
  again = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  assert type(theirs) is type(model)
  pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
  for texts in (TEXTS, pairs):
    assert again(texts)['input_ids'] == tokenizer(texts)['input_ids']
  found = opened.open_weights(tmp_path / 'out')
  found.check_complete()
  # The longest text, too.
  for ids in (tokenizer(TEXTS[0])['input_ids'], [7] * found.model.max_length):
    expected = logits_of(torch, model, ids)
    for logits in (ours_of(found, ids), logits_of(torch, theirs.eval(), ids)):
      np.testing.assert_allclose(logits, expected, atol=1e-4)
  given = again(pairs, return_tensors='pt', padding=True)
  with torch.no_grad():
    assert theirs(**given).logits.isfinite().all()


KINDS_OF_TASKS = ['own pairs', 'own tags', 'own questions', 'own choices']


@pytest.mark.slow
@pytest.mark.parametrize('task', [*KINDS_OF_TASKS, 'own scores', 'own roles'])
def test_every_kind_of_task_is_learnt(made, task, one_device, tmp_path):
  folder, *_ = made
  changes = small_kinds.write(tmp_path / 'task', task)
  config = small_tasks.small_config(
    tmp_path / 'task', folder, **changes, **{'train.num_epochs': 2.0}
  )
  results = runs.train(config, tmp_path / 'fine')
  again = opened.open_weights(tmp_path / 'fine')
  assert state.digest(again.load()) == results['state_sha256']
  assert results['steps'] >= 2
  source = tokenization.load(folder)
  assert again.tokenizer.fingerprint == source.fingerprint


@pytest.mark.slow
def test_pre_training_goes_on(made, small_config, one_device, tmp_path):
  folder, *_ = made
  found = opened.open_weights(folder)
  model = {
    f'model.{key}': value
    for key, value in convert.inspect(folder)['sizes'].items()
  }
  text = tmp_path / 'text.txt'
  lines = '\n'.join(encoder_folders.TEXT)
  text.write_text('\n\n'.join(f'Text {i}.\n{lines}' for i in range(40)))
  config = small_config(
    **model,
    **{
      'data.folder': None,
      'data.source': str(text),
      'data.tokenizer': str(folder),
      'data.document_break': 'blank_line',
      'init.weights': str(folder),
      'train.objective': 'mlm',
      'train.phases': ((2, 32, 8, 'continue'),),
      'train.eval_every': 2,
      'train.checkpoint_every': 2,
      'optim.warmup_steps': 1,
      'init.new_rows': True,
    },
  )
  results = runs.train(config, tmp_path / 'run')
  assert np.isfinite(results['metrics']['eval/mlm_loss'])
  again = opened.open_weights(tmp_path / 'run')
  assert again.tokenizer.fingerprint == found.tokenizer.fingerprint
