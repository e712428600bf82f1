"""Runs that start from published weights and from workdirs."""

import json

import jax
import numpy as np
import pytest
import runs
import small_elmo
import small_published
import transformers
import word_models
from elmo_store import (
  WORDS,
  build_words,
  make_job,
  small_elmo_config,
  write_topics,
)
from gpt_store import small_gpt_config, small_stores

from data.store import corpus
from data.vocabulary import tokenization
from models import layers
from models.pretrained import elmo as pretrained_elmo
from models.pretrained import published, strict
from models.pretrained.weights import Weights, shapes_of
from train.engine import sharding
from train.params import convert, warm_start
from train.pretrain import job as pretraining
from train.run import curves, settings, training


@pytest.fixture
def said(monkeypatch):
  """The lines that a person is told."""
  lines = []
  monkeypatch.setattr(warm_start, 'say', lines.append)
  return lines


def begin(config, devices=None):
  """Returns the fresh parameters of a run, and those it begins with."""
  theirs = warm_start.open_beginning(config)
  store, job = make_job(config, devices)
  warm_start.check_vocabulary(theirs, config, store.tokenizer)
  with sharding.scope(job.mesh, config.mesh.rules):
    params = job.create_state().params
    fresh = strict.flatten(jax.tree.map(np.array, params))
    begun = warm_start.load(theirs, job.model, store.tokenizer, params)
  jax.tree.map(
    lambda leaf, place: (
      leaf.sharding.is_equivalent_to(place, leaf.ndim)
      or pytest.fail(f'{leaf.sharding} is not {place}')
    ),
    begun,
    job.shardings.params,
  )
  return fresh, strict.flatten(begun)


def arrays(folder):
  """Returns 'path/of/parameter' -> array of published weights."""
  params = jax.tree.map(np.array, published.open_folder(folder).load())
  return strict.flatten(params)


def assert_equal(found, expected):
  for path, leaf in expected.items():
    np.testing.assert_array_equal(found[path], leaf, err_msg=path)


# --- BERT


@pytest.fixture(scope='module')
def pieces(small_store):
  return corpus.open_store(small_store).tokenizer


@pytest.fixture(scope='module')
def berts(pieces, tmp_path_factory):
  """Folders by the class that wrote them."""
  folder = tmp_path_factory.mktemp('berts')
  for kind in small_published.HEADS:
    small_published.write_bert(folder / kind, pieces, kind)
  return folder


@pytest.fixture(scope='module')
def bert_config(small_config, berts):
  def make(kind='BertForPreTraining', **overrides):
    defaults = {
      'init__weights': str(berts / kind),
      'model__gelu': 'erf',
      'optim__learning_rate': 0.0,
    }
    return small_config(**{**defaults, **overrides})

  return make


def test_steps_of_rate_0_keep_what_the_weights_have(
  bert_config, berts, said, tmp_path, monkeypatch
):
  """As of MiniLM, which was published without heads; in 8 parts."""
  monkeypatch.setattr(curves, 'draw_curves', lambda *_, **__: None)
  config = bert_config(
    'BertModel', train__phases=((2, 32, 16, 'continue'),), mesh__fsdp=8
  )
  job = pretraining.make(config, tmp_path / 'workdir')
  training.train(job, tmp_path / 'workdir')
  expected = arrays(berts / 'BertModel')
  found = strict.flatten(
    warm_start.opened.checkpoint.restore_params(
      tmp_path / 'workdir', job.shapes.params
    )
  )
  assert {path.partition('/')[0] for path in found.keys() - expected} == {
    'mlm',
    'nsp',
  }
  assert_equal(found, expected)
  assert said[1:] == ['  starts anew: mlm, nsp']
  # A run begins with the workdir as with them, and in other parts.
  again = bert_config(mesh__data=1, init__weights=str(tmp_path / 'workdir'))
  fresh, begun = begin(again)
  assert_equal(begun, found)
  assert fresh.keys() == begun.keys()


@pytest.mark.parametrize(
  'kind', ['BertForTokenClassification', 'BertForSequenceClassification']
)
def test_heads_of_tasks_are_left_out(kind, bert_config, berts, said):
  fresh, begun = begin(bert_config(kind))
  expected = arrays(berts / kind)
  extra = {path for path in expected if 'classifier' in path}
  assert len(extra) == 2
  assert_equal(begun, {p: expected[p] for p in expected.keys() - extra})
  assert_equal(begun, {p: fresh[p] for p in fresh.keys() - expected})
  assert f'  left out: {extra.pop().partition("/")[0]}' in said


def test_all_that_differs_is_refused_at_once(bert_config, berts, tmp_path):
  config = bert_config(
    model__num_layers=3,
    model__max_length=32,
    model__mlp_dim=128,
    model__gelu='tanh',
  )
  with pytest.raises(ValueError, match='does not fit the config') as error:
    runs.train(config, tmp_path / 'workdir')
  for part in (
    'num_layers is 2 there, 3 in the config: --config.model.num_layers=2',
    'max_length is 64 there, 32 in the config: --config.model.max_length=64',
    'mlp_dim is 64 there, 128 in the config: --config.model.mlp_dim=64',
    'gelu is erf there, tanh in the config: --config.model.gelu=erf',
  ):
    assert part in str(error.value)
  assert 'new_rows' not in str(error.value)
  assert not (tmp_path / 'workdir').exists()
  for key, value in {'layer_norm_eps': 1e-6, 'vocab_size': 501}.items():
    folder = tmp_path / key
    folder.mkdir()
    for file in (berts / 'BertForPreTraining').iterdir():
      (folder / file.name).write_bytes(file.read_bytes())
    small_published.change(folder, key, value)
  config = bert_config(init__weights=str(tmp_path / 'layer_norm_eps'))
  with pytest.raises(
    ValueError,
    match='layer_norm_epsilon is 1e-06 there, 1e-12.*layer_norm_epsilon=1e-06',
  ):
    warm_start.open_beginning(config)
  config = bert_config(init__weights=str(tmp_path / 'vocab_size'))
  with pytest.raises(ValueError, match='of 501 pieces, .*has 500'):
    warm_start.open_beginning(config)


def test_a_run_names_the_vocabulary_that_weights_lack(
  bert_config, berts, pieces, small_store, larger, said, tmp_path
):
  """A store's is not taken for theirs unasked; rows beyond it are padding."""
  small_published.write_bert(tmp_path, pieces, rows=512)
  for file in ('vocab.txt', 'tokenizer.json'):
    (tmp_path / file).unlink(missing_ok=True)
  weights_alone = {'init__weights': str(tmp_path)}
  with pytest.raises(ValueError, match='no vocab.*--config.data.tokenizer=PA'):
    warm_start.open_beginning(bert_config(**weights_alone))
  config = bert_config(**weights_alone, data__tokenizer=str(small_store))
  _, begun = begin(config)
  expected = arrays(tmp_path)
  for path in ('embeddings/tokens/embedding', 'mlm/bias'):
    assert np.abs(expected[path][500:]).min() > 0
    expected[path][500:] = 0
  assert_equal(begun, expected)
  assert said[1:] == [
    '  the token table has 512 rows, the vocabulary 500 pieces: the last 12'
    ' rows are left out'
  ]
  # The message names the vocabulary, as the folder has none.
  config = bert_config(
    **weights_alone,
    data__tokenizer=str(small_store),
    data__folder=str(larger),
  )
  with pytest.raises(ValueError, match=f'text with --tokenizer {small_store}'):
    warm_start.open_beginning(config)


@pytest.mark.parametrize('gelu', ['erf', 'tanh'])
def test_either_gelu_fits_where_the_files_do_not_tell(
  gelu, bert_config, berts, said, tmp_path
):
  source = berts / 'BertForPreTraining'
  model = transformers.BertForPreTraining.from_pretrained(source)
  small_published.release_bert(tmp_path, model, source)
  config = bert_config(init__weights=str(tmp_path), model__gelu=gelu)
  assert warm_start.open_beginning(config).kind == 'TensorFlow'
  if gelu == 'tanh':
    _, begun = begin(config)
    assert_equal(begun, arrays(source))
    (line,) = said[1:]
    assert 'read as erf, as Hugging Face does' in line
    assert line.endswith("the run has the form 'tanh'")


def test_no_second_copy_of_the_parameters_is_made(
  bert_config, berts, larger, monkeypatch
):
  """Nor on a host: an array lies there until the next one is read."""
  config = bert_config(data__folder=str(larger), init__new_rows=True)
  theirs = warm_start.open_beginning(config)
  store, job = make_job(config, jax.devices())
  with sharding.scope(job.mesh, config.mesh.rules):
    params = job.create_state().params
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(params)]
    before = live_bytes()
    most, real = [], theirs._read_entries

    def read(shardings, keep):
      def measured(path, leaf):
        kept = keep(path, leaf)
        most.append(live_bytes() - before)
        return kept

      return real(shardings, measured)

    theirs = theirs._replace(read=read)
    begun = warm_start.load(theirs, job.model, store.tokenizer, params)
  assert len(most) == len(jax.tree.leaves(begun))
  assert max(most) <= max(sizes) < sum(sizes) / 2


def live_bytes():
  return sum(array.nbytes for array in jax.live_arrays())


def test_other_models_are_refused_before_a_store_is_built(
  bert_config, tmp_path
):
  config = small_gpt_config(
    'gpt2',
    {'gpt2': tmp_path / 'none'},
    **{'init.weights': bert_config().init.weights},
  )
  with pytest.raises(ValueError, match="holds a bert, but model.name='gpt2'"):
    runs.train(config, tmp_path / 'workdir')
  assert not (tmp_path / 'none').exists()
  config = bert_config(init__weights=str(tmp_path / 'nowhere'))
  with pytest.raises(FileNotFoundError, match='no such file or folder'):
    runs.train(config, tmp_path / 'workdir')


# --- More pieces and positions


NEW = ['[NEW1]', '[NEW2]', 'zyzzyva']


@pytest.fixture(scope='module')
def larger(small_store, tmp_path_factory):
  """A store of the same text whose vocabulary has three pieces more."""
  folder = tmp_path_factory.mktemp('larger')
  tokenizer = corpus.open_store(small_store).tokenizer
  tokenizer.save(folder / 'vocabulary')
  vocab = folder / 'vocabulary' / 'vocab.txt'
  vocab.write_text(vocab.read_text() + ''.join(f'{piece}\n' for piece in NEW))
  (folder / 'vocabulary' / 'tokenizer.json').unlink()
  meta = json.loads((small_store / 'store.json').read_text())
  from data.store import build

  build.build_store(
    meta['spec']['source'],
    str(folder / 'vocabulary'),
    folder / 'store',
    document_break='== .*',
    held_out=meta['request']['held_out'],
    progress=False,
  )
  return folder / 'store'


def test_new_rows_are_refused_unless_asked_for(bert_config, larger, tmp_path):
  config = bert_config(data__folder=str(larger), model__max_length=128)
  with pytest.raises(ValueError, match='does not fit') as error:
    warm_start.open_beginning(config)
  for part in (
    "the store's vocabulary has 3 pieces that the weights lack: [NEW1], [NEW2],"
    ' zyzzyva: --config.init.new_rows=true',
    'max_length is 64 there, 128 in the config: --config.model.max_length=64,'
    ' or --config.init.new_rows=true',
  ):
    assert part in str(error.value)


def test_new_rows_are_as_drawn_and_the_others_copied(
  bert_config, berts, larger, said
):
  config = bert_config(
    data__folder=str(larger), model__max_length=128, init__new_rows=True
  )
  fresh, begun = begin(config, jax.devices())
  expected = arrays(berts / 'BertForPreTraining')
  for path, rows in {
    'embeddings/tokens/embedding': 500,
    'mlm/bias': 500,
    'embeddings/positions': 64,
  }.items():
    theirs = expected.pop(path)
    np.testing.assert_array_equal(begun[path][:rows], theirs[:rows])
    np.testing.assert_array_equal(begun[path][rows:], fresh[path][rows:])
  assert np.abs(begun['embeddings/tokens/embedding'][500:503]).min() > 0
  assert_equal(begun, expected)
  assert said[1:] == [
    '  new: tokens 500 to 502: [NEW1], [NEW2], zyzzyva',
    '  new: positions 64 to 127',
  ]


def test_workdirs_grow_too(bert_config, berts, larger, said, tmp_path):
  source = berts / 'BertForPreTraining'
  convert.import_(source, tmp_path / 'workdir')
  config = bert_config(
    data__folder=str(larger),
    model__max_length=128,
    init__new_rows=True,
    init__weights=str(tmp_path / 'workdir'),
    mesh__fsdp=8,
  )
  fresh, begun = begin(config, jax.devices())
  expected = arrays(source)
  table = 'embeddings/tokens/embedding'
  np.testing.assert_array_equal(begun[table][:500], expected[table][:500])
  np.testing.assert_array_equal(begun[table][500:], fresh[table][500:])
  assert_equal(begun, {'mlm/dense/kernel': expected['mlm/dense/kernel']})
  assert '  new: positions 64 to 127' in said


def test_a_softmax_grows_with_its_token_table(small_store, larger):
  """Of Bengio's network, whose softmax is a table of its own."""
  pieces, more = (
    corpus.open_store(folder).tokenizer for folder in (small_store, larger)
  )
  old = word_models.make('nnlm', pieces.vocab_size)
  new = word_models.make('nnlm', more.vocab_size)
  found = Weights(
    small_store,
    'workdir',
    'nnlm',
    model=old,
    shapes=shapes_of(old),
    tokenizer=pieces,
  )
  maps = warm_start._row_maps(found, new, more, found.shapes)
  expected = [*range(pieces.vocab_size), *[-1] * len(NEW)]
  grown = {path: rows for path, rows in maps.items() if rows is not None}
  assert grown.keys() == {'tokens/embedding', 'softmax/kernel', 'softmax/bias'}
  for rows in grown.values():
    assert rows.tolist() == expected
  assert warm_start._report(found, new, more, found.shapes) == [
    'new: tokens 500 to 502: [NEW1], [NEW2], zyzzyva'
  ]


def test_a_smaller_or_another_vocabulary_is_refused(
  bert_config, larger, small_store, tmp_path
):
  tokenizer = corpus.open_store(larger).tokenizer
  small_published.write_bert(tmp_path / 'larger', tokenizer)
  config = bert_config(
    init__weights=str(tmp_path / 'larger'), init__new_rows=True
  )
  with pytest.raises(
    ValueError, match=r'another vocabulary \(503 pieces.*--tokenizer'
  ):
    warm_start.open_beginning(config)
  # Where the store is still to be built, the vocabulary that is named tells.
  config = bert_config(
    data__folder=str(tmp_path / 'none'),
    data__tokenizer=str(larger),
    init__weights=str(tmp_path / 'larger'),
  )
  warm_start.open_beginning(config)
  config = bert_config(
    data__folder=str(tmp_path / 'none'),
    data__tokenizer=str(small_store),
    init__weights=str(tmp_path / 'larger'),
  )
  with pytest.raises(ValueError, match='another vocabulary'):
    warm_start.open_beginning(config)


# --- GPT and GPT-2


@pytest.fixture(scope='module')
def stores(tmp_path_factory):
  return small_stores(tmp_path_factory.mktemp('stores'))


@pytest.mark.parametrize('name', ['gpt', 'gpt2'])
def test_gpt_begins_with_published_weights(name, stores, said, tmp_path):
  tokenizer = tokenization.load(stores[name])
  small_published.write_gpt(tmp_path, tokenizer)
  config = small_gpt_config(name, stores, **{'init.weights': str(tmp_path)})
  fresh, begun = begin(config)
  expected = arrays(tmp_path)
  if name == 'gpt':
    table = expected.pop('embeddings/tokens/embedding')
    known = tokenizer.vocab_size - 3
    found = begun['embeddings/tokens/embedding']
    np.testing.assert_array_equal(found[:known], table[:known])
    np.testing.assert_array_equal(
      found[known:], fresh['embeddings/tokens/embedding'][known:]
    )
    symbols = ', '.join(tokenizer.pieces[-3:])
    assert said[1:] == [f'  new: tokens {known} to {known + 2}: {symbols}']
  else:
    assert said[1:] == []
  assert_equal(begun, expected)
  assert fresh.keys() == begun.keys()


# --- ELMo


@pytest.fixture(scope='module')
def elmo_config(tmp_path_factory):
  folder = tmp_path_factory.mktemp('initial')
  store = build_words(write_topics(folder, 0, 12), folder / 'store')
  return small_elmo_config(
    store,
    optim__learning_rate=0.0,
    train__steps=1,
    train__global_batch=8,
    eval__global_batch=8,
  )


@pytest.fixture(scope='module')
def released(elmo_config, tmp_path_factory):
  """A folder of options and weights of the config's sizes, and the weights."""
  model = make_job(elmo_config)[1].model.clone(vocab_size=0)
  params = small_elmo.random_params(model)
  folder = tmp_path_factory.mktemp('released')
  pretrained_elmo.write_folder(folder, model, params)
  return folder, params


def from_weights(config, folder, **overrides):
  return settings.with_overrides(
    config, {'init.weights': str(folder), **overrides}
  )


@pytest.mark.slow
def test_all_but_the_softmax_is_the_released_weights(
  elmo_config, released, said, tmp_path, monkeypatch
):
  runs.see_one_device(monkeypatch)
  folder, params = released
  config = from_weights(elmo_config, folder)
  runs.train(config, tmp_path / 'workdir')  # a step of rate 0
  _, found = begin(from_weights(config, tmp_path / 'workdir'))
  expected = strict.flatten(params)
  anew = {path for path in found if path.startswith('softmax/')}
  assert found.keys() - expected.keys() == anew
  assert_equal(found, expected)
  assert '  starts anew: softmax' in said
  model = make_job(config)[1].model
  kernel = np.asarray(found['softmax/kernel'])[: model.vocab_size]
  assert abs(np.std(kernel) * model.projection_dim**0.5 - 1) < 0.1


def test_words_beyond_the_softmax_need_no_rows(elmo_config):
  """A store has more types than the padded softmax of its vocabulary."""
  tokenizer = corpus.open_store(elmo_config.data.folder).tokenizer
  assert tokenizer.vocab_size > layers.pad_vocab(WORDS)
  found = word_models.draw('nnlm', tokenizer)
  maps = warm_start._row_maps(found, found.model, tokenizer, found.shapes)
  assert maps == dict.fromkeys(found.shapes)


def test_other_settings_of_an_elmo_are_refused_together(elmo_config, released):
  config = from_weights(
    elmo_config,
    released[0],
    **{'model.cell_clip': 2.0, 'model.filters': ((1, 8), (2, 16))},
  )
  with pytest.raises(ValueError, match='does not fit the config') as error:
    warm_start.open_beginning(config)
  for part in (
    'cell_clip is 3.0 there, 2.0 in the config: --config.model.cell_clip=3.0',
    "'--config.model.filters=((1, 8), (3, 16))'",
  ):
    assert part in str(error.value)


def test_damage_is_named(elmo_config, released, tmp_path):
  folder, _ = released
  for file in folder.iterdir():
    (tmp_path / file.name).write_bytes(file.read_bytes())
  config = from_weights(elmo_config, tmp_path)
  options = json.loads((tmp_path / 'options.json').read_text())
  options['lstm']['dim'] = 25
  (tmp_path / 'options.json').write_text(json.dumps(options))
  with pytest.raises(ValueError, match='lstm.dim is 25, the weights have 24'):
    warm_start.open_beginning(config)
  (weights,) = tmp_path.glob('*.hdf5')
  weights.write_bytes(weights.read_bytes()[:500])
  with pytest.raises(ValueError, match='is damaged or no HDF5 file'):
    warm_start.open_beginning(config)
