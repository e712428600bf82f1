"""Published weights where a workdir is accepted, against Hugging Face."""

import pydoc_data.topics
import shutil

import jax
import numpy as np
import pytest
from safetensors import numpy
from small_published import GPT_SIZES, change, save_vocabulary, write_bert

from data.vocabulary import tokenization
from models.pretrained import strict
from models.pretrained.weights import Weights
from train.engine import sharding
from train.language import completions, scoring
from train.params import opened
from train.run import settings
from train.vectors import trained_model
from train.vectors.request import Choice, Request
from train.vectors.trained_model import TrainedModel

TEXT = 'The yield statement is only used when defining a generator function'


@pytest.fixture(scope='module', params=['gpt', 'gpt2'])
def published(request, tmp_path_factory):
  """A folder as people find it, and the model that wrote it."""
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  folder = tmp_path_factory.mktemp(request.param)
  kind = 'bpe' if request.param == 'gpt' else 'bytebpe'
  tokenizer = tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training(f'train:{kind}:500'),
  )
  save_vocabulary(tokenizer, folder)
  torch.manual_seed(0)
  if request.param == 'gpt':
    model = transformers.OpenAIGPTLMHeadModel(
      transformers.OpenAIGPTConfig(vocab_size=497, **GPT_SIZES)
    )
  else:
    model = transformers.GPT2LMHeadModel(
      transformers.GPT2Config(vocab_size=500, n_inner=48, **GPT_SIZES)
    )
  for parameter in model.parameters():
    parameter.data += 0.1 * torch.randn_like(parameter)
  model.eval().save_pretrained(folder)
  return request.param, folder, model


def test_scores_and_texts_are_those_of_hugging_face(published):
  import torch

  name, folder, model = published
  found = TrainedModel(folder, use='generate')
  assert found.name == name
  (ids,) = found.tokenizer.encode_batch([TEXT])
  tokens = torch.tensor([ids])
  with torch.no_grad():
    logits = model(tokens).logits[0].log_softmax(-1)
  theirs = logits[range(len(ids) - 1), ids[1:]].numpy()
  (ours,) = scoring.score_sequences(found.model, found.params, [ids])
  np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
  (written,) = completions.complete(found, [TEXT], max_new_tokens=20)
  expected = model.generate(
    tokens,
    attention_mask=torch.ones_like(tokens),
    do_sample=False,
    max_new_tokens=20,
    pad_token_id=0,
    eos_token_id=None,
  )
  assert written.tokens == expected[0, len(ids) :].tolist()


def check_inputs(folder):
  """The module gives a batch of `inputs` the vectors that each text has."""
  model, texts = TrainedModel(folder), [TEXT, 'The yield', TEXT[:30]]
  begin, end = map(len, model.family.frame(model.tokenizer))
  encoder, params = model.prepared()
  inputs = model.inputs(texts)
  assert all(isinstance(array, jax.Array) for array in inputs)
  mask_BT, hidden_BTD = (
    np.asarray(array)
    for array in (
      inputs[1],
      encoder.apply({'params': params}, *inputs, train=False)['hidden'],
    )
  )
  for mask_T, hidden_TD, expected in zip(
    mask_BT, hidden_BTD, model.vectors(texts, Request('token')), strict=True
  ):
    rows = hidden_TD[mask_T][begin : mask_T.sum() - end]
    np.testing.assert_allclose(rows, expected.array, rtol=0, atol=1e-5)
  with pytest.raises(
    ValueError, match=r'text 1 \(from 0\) has .* 1 to 64, the pos'
  ):
    model.inputs(['The yield', TEXT * 20])
  for wrong in ('The yield', []):
    with pytest.raises(ValueError, match='expected a list of texts'):
      model.inputs(wrong)


def test_inputs_of_a_gpt(published):
  check_inputs(published[1])


def changed(key, value):
  return lambda folder: change(folder, key, value)


def cut(folder):
  file = folder / 'model.safetensors'
  file.write_bytes(file.read_bytes()[:-100])


DAMAGES = {
  'another kind': (changed('model_type', 'llama'), 'holds a llama, expected'),
  'type': (
    changed('model_type', ['gpt2']),
    r"holds a \['gpt2'\], expected gpt or gpt2",
  ),
  'epsilon': (changed('layer_norm_epsilon', '1e-5'), 'epsilon is .1e-5., exp'),
  'no size': (changed('n_layer', None), 'n_layer is missing, expected a count'),
  'no count': (changed('n_layer', '2'), "n_layer is '2', expected a count"),
  'heads': (
    changed('n_head', 3),
    r'n_embd is 32, expected a multiple of n_head \(3\)',
  ),
  'more layers': (changed('n_layer', 3), r'missing: h\.2\.'),
  'pieces': (changed('vocab_size', 498), 'another shape: .*embed|wte'),
  'not tied': (changed('tie_word_embeddings', False), 'tie_word_embeddings is'),
  'cut off': (cut, 'model.safetensors is damaged'),
  'no weights': (
    lambda folder: (folder / 'model.safetensors').unlink(),
    'no weights, expected model.safetensors',
  ),
  'no merges': (
    lambda folder: (folder / 'merges.txt').unlink(),
    'no merges.txt beside',
  ),
}


@pytest.mark.parametrize('name', DAMAGES)
def test_what_cannot_be_used_is_named(published, name, tmp_path):
  damage, message = DAMAGES[name]
  folder = tmp_path / 'weights'
  shutil.copytree(published[1], folder)
  damage(folder)
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    _ = TrainedModel(folder, use='generate').params


def test_what_old_folders_leave_out_or_add(published, tmp_path):
  name, given, _ = published
  folder = tmp_path / 'weights'
  shutil.copytree(given, folder)
  for key in ('model_type', 'layer_norm_epsilon'):
    change(folder, key, None)
  if name == 'gpt2':
    change(folder, 'activation_function', None)
  file = folder / 'model.safetensors'
  arrays = numpy.load_file(file) | {'position_ids': np.arange(64)}
  arrays = {key: array.astype(np.float16) for key, array in arrays.items()}
  numpy.save_file(arrays, file)
  old, new = (TrainedModel(where, use='generate') for where in (folder, given))
  assert old.model == new.model
  # float16 has 11 bits.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6),
    old.params,
    new.params,
  )
  table = next(key for key in arrays if 'wpe' in key or 'positions' in key)
  arrays[table][3, 0] = np.nan
  numpy.save_file(arrays, file)
  with pytest.raises(ValueError, match='(wpe|embed).weight holds'):
    _ = TrainedModel(folder, use='generate').params


def test_weights_need_the_vocabulary_they_were_trained_with(
  published, tmp_path
):
  folder = tmp_path / 'weights'
  shutil.copytree(published[1], folder)
  kind = 'bpe' if published[0] == 'gpt' else 'bytebpe'
  tokenizer = tokenization.train(
    [TEXT * 20], tokenization.parse_training(f'train:{kind}:310')
  )
  save_vocabulary(tokenizer, folder)
  with pytest.raises(ValueError, match='the weights are of (497|500) pieces'):
    TrainedModel(folder, use='generate')


def test_a_folder_of_neither_kind_is_refused(tmp_path):
  with pytest.raises(FileNotFoundError, match='neither a workdir'):
    TrainedModel(tmp_path, use='generate')


# --- BERT


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  """A folder of a BERT without heads, as of MiniLM; and what wrote it."""
  folder = tmp_path_factory.mktemp('bert')
  tokenizer = tokenization.train(
    [TEXT * 20], tokenization.parse_training('train:wordpiece:60')
  )
  return folder, write_bert(folder, tokenizer, 'BertModel')


def test_bert_gives_the_states_of_hugging_face(bert):
  import torch

  folder, model = bert
  found = TrainedModel(folder)
  assert found.name == 'bert' and found.model.heads == ('pooler',)
  (ids,) = found.encode([TEXT])
  ids = np.array([[found.tokenizer.cls_id, *ids, found.tokenizer.sep_id]])
  with torch.no_grad():
    theirs = model(torch.from_numpy(ids))
  ours = found.model.apply(
    {'params': found.params},
    ids,
    ids >= 0,
    np.zeros_like(ids),
    np.arange(ids.size)[None],
    train=False,
  )
  for name, expected in (
    ('hidden', theirs.last_hidden_state),
    ('pooled', theirs.pooler_output),
  ):
    np.testing.assert_allclose(ours[name], expected, rtol=0, atol=1e-5)


def test_inputs_of_a_bert(bert):
  check_inputs(bert[0])


def test_parameters_are_read_when_needed_and_freed_in_turn(bert, monkeypatch):
  reads, load = [], Weights.load
  monkeypatch.setattr(
    Weights, 'load', lambda *given: reads.append(1) or load(*given)
  )
  models = [TrainedModel(bert[0]) for _ in range(2)]
  for number, model in enumerate(trained_model.in_turn(models)):
    assert len(reads) == number
    assert model.params is model.params
    assert len(reads) == number + 1
    assert sum('params' in vars(each) for each in models) == 1
  assert not any('params' in vars(each) for each in models)


def test_parameters_in_the_hosts_memory_give_the_same_vectors(bert):
  request = Request('word', choice=Choice('all'))
  model = TrainedModel(bert[0])
  (expected,) = model.vectors([TEXT], request)
  model.to_host()
  assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(model.params))
  (found,) = model.vectors([TEXT], request)
  np.testing.assert_array_equal(found.array, expected.array)
  ((_, words),) = model.words([TEXT.split()])
  np.testing.assert_array_equal(words.array, expected.array)
  shape = (model.num_layers, len(TEXT.split()), model.dim)
  assert words.array.shape == shape == (3, 11, 32)


def test_parameters_are_split_over_a_mesh(bert):
  folder, _ = bert
  config = settings.load_config('bert_tiny')
  config = settings.with_overrides(
    config, {'mesh.data': 2, 'mesh.fsdp': 2, 'mesh.tensor': 2}
  )
  mesh = sharding.make_mesh(config.mesh)
  found = opened.open_weights(folder)
  places = sharding.parameter_shardings(
    opened.abstract_params(found.model), mesh, config.mesh.rules
  )
  parts, whole = found.load(strict.flatten(places)), found.load()
  jax.tree.map(np.testing.assert_array_equal, parts, whole)
  kernel = parts['layers']['mlp']['in']['kernel']  # [L, D, F]
  assert kernel.sharding.shard_shape(kernel.shape) == (2, 16, 32)
  table = parts['embeddings']['tokens']['embedding']
  assert table.sharding.shard_shape(table.shape) == (64, 16)


def test_a_vocabulary_of_another_size_is_refused(bert, tmp_path):
  folder = tmp_path / 'weights'
  shutil.copytree(bert[0], folder)
  with open(folder / 'vocab.txt', 'a') as file:
    file.write('one\nmore\n')
  with pytest.raises(ValueError, match=r'are of \d+ pieces, .* them has \d+'):
    TrainedModel(folder)
