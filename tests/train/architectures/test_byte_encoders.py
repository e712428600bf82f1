"""Encoders with a byte-level vocabulary: every use of published folders."""

import json
import re

import encoder_folders
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import small_kinds
import small_tasks
import task_answers

from data.vocabulary import tokenization
from models.pretrained.weights import SentenceForm
from train import fill_mask
from train.engine import state
from train.exports import exported, folders, sentence_folder
from train.language import cloze, inputs, sentence_sums
from train.params import convert, opened
from train.vectors.request import Request
from train.vectors.trained_model import ALL_LAYERS, TrainedModel
from train.views import attention_weights, input_rows
from train.views.attention_texts import ShownText

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


def test_vectors_of_all_layers_are_equal(torch, made):
  """Of texts of all lengths at once, so that padding stands beside them."""
  folder, theirs, tokenizer = made
  found = TrainedModel(folder)
  texts = [*TEXTS, 'x', 'mat ' * 24]
  vectors = list(found.vectors(texts, Request('token', choice=ALL_LAYERS)))
  for text, vector in zip(texts, vectors, strict=True):
    ids = tokenizer(text)['input_ids']
    with torch.no_grad():
      expected = theirs.base_model(
        input_ids=torch.tensor([ids]), output_hidden_states=True
      )
    np.testing.assert_allclose(
      vector.array,
      torch.stack(expected.hidden_states)[:, 0, 1:-1].numpy(),
      atol=1e-5,
    )
    # The last is behind the final norm there, too.
    assert torch.equal(expected.hidden_states[-1], expected.last_hidden_state)


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


def test_the_mask_is_that_of_the_vocabulary(made):
  folder, _, tokenizer = made
  mask = tokenizer.mask_token
  (other,) = {*inputs.MASKS} - {mask}
  with pytest.raises(ValueError, match=re.escape(f'expected {mask} in each')):
    cloze.fill(TrainedModel(folder), [f'a {mask}', f'a {other} b'])


def test_pairs_are_shown_as_they_are_read(made):
  """By the views of inputs and of attention."""
  folder, _, tokenizer = made
  found, pair = TrainedModel(folder), (TEXTS[0], 'a café')
  expected = tokenizer(*pair)['input_ids']
  row, *_ = input_rows.describe(found, pair)
  assert row.lines['id'] == expected
  symbols = {found.tokenizer.cls_id, found.tokenizer.sep_id}
  are_symbols = [i in symbols for i in expected]
  assert [part == 'symbol' for part in row.parts] == are_symbols
  (shown,) = attention_weights.frame(found, [ShownText(*pair)])
  assert shown.ids == expected and shown.symbols == are_symbols
  assert shown.segments.count(1) == len(found.encode(pair[1:])[0]) + 1


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


# Task -> the class of transformers that answers as we do; None: ModernBERT's
# classes have another layer before the head.
TASKS = {
  'own pairs': ('ForSequenceClassification',) * 2,
  'own scores': ('ForSequenceClassification',) * 2,
  'own choices': ('ForSequenceClassification', 'ForMultipleChoice'),
  'own tags': (None, 'ForTokenClassification'),
  'own roles': (None, 'ForTokenClassification'),
  'own questions': (None, 'ForQuestionAnswering'),
}


@pytest.mark.slow
@pytest.mark.parametrize('task', TASKS)
def test_every_kind_of_task_is_learnt(torch, made, task, one_device, tmp_path):
  """And answered alike by transformers with the export."""
  import transformers

  folder, model, _ = made
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
  name = TASKS[task][source.kind == 'roberta']
  if name is None:
    with pytest.raises(ValueError, match='no class of ModernBERT has the head'):
      folders.export(tmp_path / 'fine', tmp_path / 'out')
    return
  folders.export(tmp_path / 'fine', tmp_path / 'out')
  told = json.loads((tmp_path / 'out/config.json').read_text())
  family = encoder_folders.CLASSES[source.kind]
  assert told['architectures'] == [family + name]
  is_regression = told.get('problem_type') == 'regression'
  assert is_regression == (task == 'own scores')
  theirs, loaded = getattr(transformers, family + name).from_pretrained(
    tmp_path / 'out', output_loading_info=True
  )
  assert not any(loaded.values()), loaded
  batch, ours = task_answers.answers(config, tmp_path / 'fine')
  ids, mask = (
    torch.tensor(np.asarray(batch[key]).astype(np.int64))
    for key in ('tokens', 'token_mask')
  )
  if task == 'own choices' and name == 'ForSequenceClassification':
    ids, mask = (x.reshape(-1, x.shape[-1]) for x in (ids, mask))
  with torch.no_grad():
    outputs = theirs.eval()(input_ids=ids, attention_mask=mask)
  if task == 'own questions':
    logits = torch.stack([outputs.start_logits, outputs.end_logits], -1)
  else:
    logits = outputs.logits
  logits = logits.numpy().reshape(ours.shape)
  seen = batch['token_mask'] if ours.ndim == 3 else ...
  np.testing.assert_allclose(ours[seen], logits[seen], atol=1e-4)


@pytest.mark.slow
def test_vectors_of_sentences_are_equal(torch, made, tmp_path):
  """Of a folder of sentence-transformers, and of our own export."""
  theirs = pytest.importorskip('sentence_transformers')
  folder, *_ = made
  form = SentenceForm('mean', True, max_length=40)
  request = exported.ExportRequest('sentence-transformers')
  folders.export(folder, tmp_path / 'plain', request=request)
  (tmp_path / 'plain/1_Pooling/config.json').unlink()
  (tmp_path / 'plain/1_Pooling').rmdir()
  sentence_folder.write_settings(tmp_path / 'plain', form, 32, 64)
  # The name that older folders of a RoBERTa have.
  settings = tmp_path / 'plain/sentence_bert_config.json'
  settings.rename(tmp_path / 'plain/sentence_roberta_config.json')
  model = theirs.SentenceTransformer(str(tmp_path / 'plain'), device='cpu')
  found = TrainedModel(tmp_path / 'plain')
  assert found.weights.sentence_form == form
  ours = np.stack([x.array for x in found.vectors(TEXTS, Request())])
  np.testing.assert_allclose(model.encode(TEXTS), ours, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('kind', 'head', 'pool'),
  [
    ('roberta', 'ForMaskedLM', None),
    ('roberta', 'ForQuestionAnswering', None),
    ('modernbert', 'ForSequenceClassification', None),
    ('modernbert', 'ForMaskedLM', 'mean'),
  ],
)
def test_onnxruntime_computes_the_same(torch, kind, head, pool, tmp_path):
  """`test_modern` has the softmax of a ModernBERT."""
  onnxruntime = pytest.importorskip('onnxruntime')
  theirs, tokenizer = encoder_folders.write_model(
    tmp_path / 'there', kind, head
  )
  request = exported.ExportRequest('onnx', pool)
  folders.export(tmp_path / 'there', tmp_path / 'out', request=request)
  session = onnxruntime.InferenceSession(str(tmp_path / 'out/model.onnx'))
  names = [part.name for part in session.get_inputs()]
  assert names == ['input_ids', 'attention_mask']
  given = dict(tokenizer(TEXTS, padding=True, return_tensors='pt'))
  with torch.no_grad():
    expected = dict((theirs.base_model if pool else theirs)(**given))
  if pool:
    found = TrainedModel(tmp_path / 'there')
    vectors = found.vectors(TEXTS, Request(pool=pool))
    expected['sentence_embedding'] = torch.tensor(
      np.stack([vector.array for vector in vectors])
    )
  found = session.run(None, {name: given[name].numpy() for name in names})
  outputs = [part.name for part in session.get_outputs()]
  assert [*expected] == outputs
  seen = given['attention_mask'].numpy().astype(bool)
  for name, output in zip(outputs, found, strict=True):
    wanted = expected[name].numpy()
    if output.shape[:2] == seen.shape:
      output, wanted = output[seen], wanted[seen]
    np.testing.assert_allclose(output, wanted, atol=1e-5)


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
