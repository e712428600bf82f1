"""ELMo's task models as runs: they learn, answer again, go on, are refused."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import runs
import word_runs

from train.engine import sharding
from train.params import opened
from train.run import metrics, settings, workdirs
from train.transfer import bodies, finetune, sweep
from train.vectors.vector_cache import VectorCache

pytestmark = pytest.mark.usefixtures('one_device')
MIXED = {'task.mix_at': 'both', 'task.mix_l2': 0.01}
LEARNING = {
  'model.lstm_dim': 8,
  'model.hidden_dim': 8,
  'model.dropout_rate': 0.0,
  'train.eval_every': 20,
  'train.log_every': 20,
  'train.patience': None,
}


@pytest.fixture(scope='module')
def maker(small_bert, tmp_path_factory):
  return word_runs.Maker(tmp_path_factory.mktemp('words'), small_bert)


@pytest.fixture(scope='module')
def glove(maker):
  """A file of vectors, and these by their words."""
  path = maker.folder / 'glove.txt'
  return str(path), word_runs.write_glove(path)


@pytest.fixture(scope='module')
def mixed(maker, glove):
  """The config of a BCN above all layers of an ELMo, at both places."""
  changes = {'train.steps': 60, 'optim.learning_rate': 0.02}
  changes |= {'train.global_batch': 32, 'task.word_vectors': glove[0]}
  changes |= LEARNING | MIXED | maker.weights('elmo')
  return maker.config('bcn', 'own sentences', **changes)


@pytest.fixture(scope='module')
def swept(mixed, maker):
  """Folders of two seeds of a sweep, and how often vectors were computed."""
  with pytest.MonkeyPatch.context() as patch:
    calls = word_runs.count_calls(patch, VectorCache, 'compute')
    plans = word_runs.count_calls(patch, finetune, 'plan')
    folder = maker.folder / 'sweep'
    sweep.run(mixed, folder, seeds=(0, 1), keep_all=True)
  return [folder / f'seed={seed}' for seed in (0, 1)], len(calls), len(plans)


# --- Runs of each model, and their answers


@pytest.mark.slow
def test_seeds_share_a_plan_learn_and_answer_together(swept, mixed, tmp_path):
  folders, computed, planned = swept
  assert (computed, planned) == (2, 1)  # of train and of dev
  alone = [
    word_runs.check_answers(mixed, folder, tmp_path / 'a.jsonl')
    for folder in folders
  ]
  for results in map(workdirs.read_results, folders):
    assert results['metrics']['eval/own/accuracy'] > 0.8
  _, _, together = word_runs.predict_dev(mixed, folders)
  for first, second, both in zip(*alone, together, strict=True):
    assert first.probabilities != second.probabilities
    mean = np.add(first.probabilities, second.probabilities) / 2
    np.testing.assert_allclose(both.probabilities, mean, rtol=1e-5)


def test_words_of_a_file_stay_as_they_are(swept, mixed, glove):
  folder = swept[0][0]
  assert mixed.task.fixed_words
  job, begun = word_runs.begin(mixed)
  first = np.array(begun.params['words']['table'])
  words, vectors = job.tasks[0].table.words, glove[1]
  assert len(first) == 1 + len(words) == 14  # row 0, of the file, others
  for word in vectors.keys() - {'unheard'}:
    row = 1 + words.index(word)
    np.testing.assert_array_equal(first[row], vectors[word], err_msg=word)
  assert np.unique(first.round(4)).size == first.size  # the others are drawn
  kept = opened.load_params(folder / 'model')
  np.testing.assert_array_equal(kept['words']['table'], first)


# Kind of task, and number of its texts -> a set.
TWICE = {'own.text': ('text', 'text')}
SETS = {
  ('classification', 1): 'own sentences',
  ('classification', 2): 'own pairs',
  ('regression', 1): 'own scores',
  ('regression', 2): 'own scores',
  ('choice', 2): 'own choices',
  ('tagging', 1): 'own tags',
  ('roles', 1): 'own roles',
  ('coreference', 1): 'own documents',
  ('span', 2): 'own questions',
}
RUN = (  # by other tests here
  ('bcn', 'classification', 1),
  ('esim', 'regression', 2),
  ('bilstm_attention', 'choice', 2),
  ('bilstm_crf', 'tagging', 1),
)


@pytest.mark.slow
def test_each_other_kind_that_a_model_reads_has_a_step(maker):
  """Traced, not compiled."""
  found = {
    (model, kind, count)
    for model, body in bodies.BODIES.items()
    for kind, counts in body.reads.items()
    for count in counts
  }
  for model, kind, count in sorted(found - {*RUN}):
    changes = dict(maker.weights('elmo'))
    if kind == 'regression' and count == 2:
      changes |= TWICE
    config = maker.config(model, SETS[kind, count], **changes)
    job = finetune.plan(config, runs.one_device(), splits=('train',))
    batches = job.tasks[0].splits['train'].batches
    batch = batches.train_batch(0, slice(0, 8), 8, 0, 4)
    _, report = jax.eval_shape(job.steps['train'], job.shapes, batch, 0)
    assert report['loss'].shape == ()


@pytest.mark.slow
def test_choices_are_answered_again_above_a_gpt(maker, tmp_path):
  changes = {'task.features': 'last', 'task.mix_at': 'output'}
  config = maker.config(
    'bilstm_attention', 'swag', **changes, **maker.weights('gpt')
  )
  results = runs.train(config, tmp_path / 'run')
  assert results['steps'] == 4
  word_runs.check_answers(config, tmp_path / 'run', tmp_path / 'a.jsonl')
  kept = opened.load_params(tmp_path / 'run/model')
  assert set(kept['output']['mix']) == {'mix_scale'}  # of one layer
  assert 'input' not in kept


@pytest.mark.slow
def test_words_of_pairs_are_trained_without_a_language_model(
  maker, glove, tmp_path
):
  path, vectors = glove
  changes = {'task.word_vectors': path, 'task.unknown_words': 'zero'}
  config = maker.config('esim', 'own scores', **changes, **TWICE)
  assert not config.task.fixed_words and config.init.weights is None
  _, begun = word_runs.begin(config)
  first = np.array(begun.params['words']['table'])
  assert len(first) == len(vectors) and not first[0].any()  # no 'unheard'
  runs.train(config, tmp_path / 'run')
  word_runs.check_answers(config, tmp_path / 'run', tmp_path / 'a.jsonl')
  kept = opened.load_params(tmp_path / 'run/model')['words']['table']
  assert (np.abs(kept - first).max(axis=1) > 1e-5).all()


def test_words_are_looked_up_in_lower_case(maker, glove, tmp_path):
  source = shutil.copytree(maker.source('own sentences'), tmp_path / 'set')
  file = source / 'train.jsonl'
  file.write_text(file.read_text().replace('"the', '"The'))
  found = {}
  for lower in (True, False):
    changes = {'data.source': str(source), 'task.lower_words': lower}
    config = maker.config(
      'bcn', 'own sentences', **{'task.word_vectors': glove[0]} | changes
    )
    job = finetune.plan(config, runs.one_device(), splits=('train',))
    table = job.tasks[0].table
    found[lower] = table.words[: len(table.vectors)]
    assert ('The' in table.words) == (not lower)
  assert 'the' in found[True] and 'the' not in found[False]


@pytest.mark.slow
def test_long_sentences_are_tagged_above_a_bert(maker, tmp_path):
  """By letters, a table, and the BERT's layers; in rows of 16 words."""
  changes = {'train.steps': 100, 'optim.learning_rate': 0.02}
  changes |= {'model.filters': ((2, 4),), **maker.weights('bert')}
  config = maker.config('bilstm_crf', 'conll2003', **LEARNING | changes)
  assert config.task.crf == 'bioul'
  results = runs.train(config, tmp_path / 'run')
  assert results['metrics']['eval/conll2003/f1'] > 0.8
  found = word_runs.check_answers(
    config, tmp_path / 'run', tmp_path / 'a.jsonl'
  )
  assert max(len(each.answer) for each in found) == 40
  kept = opened.load_params(tmp_path / 'run/model')
  assert np.abs(kept['crf']['transitions']).max() > 0
  assert set(kept) == {'words', 'characters', 'input', 'body', 'crf'}


# --- The language model below


def test_layers_are_mixed_at_their_places(mixed):
  for place in ('input', 'output', 'both'):
    changes = {'task.mix_at': place, 'task.features': 'average'}
    config = settings.with_overrides(mixed, changes | {'task.mix_l2': None})
    params = finetune.plan(
      config, runs.one_device(), splits=('train',)
    ).shapes.params
    found = params.keys() & {'input', 'output'}
    assert found == ({'input', 'output'} if place == 'both' else {place})
    assert all(params[each]['mix'].keys() == {'mix_scale'} for each in found)


def test_penalty_is_of_both_mixes(mixed):
  job, state = word_runs.begin(mixed)
  weights = np.array([0.5, -1.0, 2.0], np.float32)
  for place in ('input', 'output'):
    mix = state.params[place]['mix']
    drawn = mix['mix_weights']
    mix['mix_weights'] = jax.device_put(weights, drawn.sharding)
  batches = job.tasks[0].splits['train'].batches
  batch = batches.train_batch(0, slice(0, 32), 32, 0, 60)
  with sharding.scope(job.mesh, mixed.mesh.rules):
    _, report = job.steps['train'](
      state, sharding.put_batch(batch, job.mesh), jnp.int32(0)
    )
  value, rows = report['sums']['mix_l2']
  penalty = 2 * np.square(weights).sum()
  np.testing.assert_allclose(value / rows, penalty, rtol=1e-6)
  task, examples = report['sums']['task']
  np.testing.assert_allclose(
    report['loss'], task / examples + 0.01 * penalty, rtol=1e-6
  )


def test_stopped_and_continued_is_uninterrupted(swept, mixed, tmp_path):
  folder = swept[0][0]
  expected = workdirs.read_results(folder)
  with word_runs.stopped():
    runs.train(mixed, tmp_path)
  other = settings.with_overrides(mixed, {'model.lstm_dim': 3})
  with pytest.raises(ValueError, match=r'model\.lstm_dim: 8 there, 3'):
    runs.train(other, tmp_path)
  results = runs.train(mixed, tmp_path)
  for key in ('state_sha256', 'optimizer_sha256', 'metrics', 'best_step'):
    assert results[key] == expected[key]
  losses, there = (
    [row for row in metrics.read_metrics(each) if row[1] == 'train/loss']
    for each in (tmp_path, folder)
  )
  assert losses == there and len(losses) == 3


@pytest.mark.slow
def test_other_weights_are_refused_where_a_run_began(
  mixed, swept, tmp_path, monkeypatch
):
  elmo = tmp_path / 'elmo'
  word_runs.write_elmo(elmo)
  config = settings.with_overrides(mixed, {'init.weights': str(elmo)})
  calls = word_runs.count_calls(monkeypatch, VectorCache, 'compute')
  with word_runs.stopped():
    runs.train(config, tmp_path / 'run')
  assert not calls  # the same weights, at another place
  file = tmp_path / 'run/reader.json'
  file.rename(tmp_path / 'kept')  # as in the workdir of another model
  with pytest.raises(FileNotFoundError, match=r'reader\.json .* not of a bcn'):
    runs.train(config, tmp_path / 'run')
  (tmp_path / 'kept').rename(file)
  shutil.rmtree(elmo)
  word_runs.write_elmo(elmo, factor=0.1)
  with pytest.raises(
    ValueError, match=r'reader\.json: .* of other weights .* digest was'
  ):
    runs.train(config, tmp_path / 'run')
  assert not calls
  other = settings.with_overrides(config, {'train.steps': 20})
  runs.train(other, tmp_path / 'other')
  assert len(calls) == 2  # of train and dev
  with pytest.raises(ValueError, match='the language model is .* in the first'):
    word_runs.predict_dev(mixed, [swept[0][0], tmp_path / 'other'])


# --- Devices


@pytest.fixture(scope='module')
def on_one(maker):
  """A tagger's config without dropout; losses of steps on one device."""
  changes = {'model.dropout_rate': 0.0, 'task.word_dim': 4}
  config = maker.config(
    'bilstm_crf', 'own tags', **changes, **maker.weights('elmo')
  )
  return config, word_runs.losses_on(config)


@pytest.mark.parametrize(
  'sizes',
  [dict(data=8), dict(data=2, fsdp=2, tensor=2)],
  ids=['data', 'mixed'],
)
def test_eight_devices_find_the_same(on_one, sizes):
  config, expected = on_one
  losses = word_runs.losses_on(config, **sizes)
  np.testing.assert_allclose(losses[0], expected[0], rtol=1e-6)
  np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_parts_of_a_batch_add_up(on_one):
  """The loss of sentences is their sum, in parts too."""
  config, expected = on_one
  parted = settings.with_overrides(config, {'train.micro_batches': 2})
  losses = word_runs.losses_on(parted)
  np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_a_dry_run_tells_the_plan(on_one, tmp_path, capsys):
  config = settings.with_overrides(on_one[0], {'train.peak_tflops': 1.0})
  assert runs.train(config, tmp_path / 'run', dry_run=True) is None
  printed = capsys.readouterr().out
  assert 'if these reach 2% of 1 TFLOP/s' in printed  # BERT would 40%
  assert '  words     11 with vectors of 4\n' in printed
  weights = config.init.weights
  assert f'weights   {weights}: 3 layers of 12, mix at input\n' in printed
  assert not (tmp_path / 'run').exists()


# --- What is refused


@pytest.mark.parametrize(
  ('model', 'kind', 'changes', 'message'),
  [
    (
      'bcn',
      'own pairs',
      {},
      "model.name='bcn': .* classification with 2 texts .* esim or bilstm_att",
    ),
    ('esim', 'own tags', {'task.crf': ''}, 'tagging with 1 .* bilstm_crf read'),
    ('bilstm_crf', 'own sentences', {'task.crf': ''}, "model.name='bilstm_crf"),
    ('bcn', 'own sentences', {'model.num_layers': 2}, 'model.num_layers=2.* 1'),
    (
      'bcn',
      'own sentences',
      {'model.hidden_dim': 0},
      'hidden_dim=0: .* a posi',
    ),
    ('bcn', 'own sentences', {'task.word_dim': 0}, 'nothing to read words by'),
    (
      'bcn',
      'own sentences',
      {'task.word_dim': 0, 'task.mix_at': 'output', 'init.weights': 'elmo'},
      'nothing to read words by',
    ),
    ('bcn', 'own scores', {'task.mix_l2': 0.1}, 'task.mix_l2=0.1 without init'),
    ('bcn', 'own sentences', {'task.split': 'commas'}, "task.split='commas'"),
    ('bcn', 'own sentences', {'task.unknown_words': '1'}, 'task.unknown_words'),
    ('bcn', 'own sentences', {'task.mix_at': 'top'}, "task.mix_at='top'.*both"),
    ('bcn', 'own sentences', {'task.features': 'first'}, 'task.features=.*mix'),
    ('bcn', 'own sentences', {'model.filters': ((9, 2),)}, 'model.filters'),
    ('bilstm_crf', 'own tags', {'task.crf': 'bio'}, "task.crf='bio'.*bioul"),
    ('bilstm_crf', 'own tags', {'own.text': ('a', 'b')}, 'own.text=.* one fie'),
  ],
)
def test_keys_that_do_not_fit(maker, tmp_path, model, kind, changes, message):
  with pytest.raises(ValueError, match=message):
    runs.train(maker.config(model, kind, **changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'the 1.0 2.0\nlist 1.0\n', 'glove.txt, line 2: found 1 fields after'),
    (b'the 1.0 2.0\nlist 1.0 nan\n', 'line 2: number 2 .* of .list. is nan'),
    (b'THE 1.0 2.0\nUnheard 1.0 2.0\n', 'glove.txt: no overlap: found 2 v'),
    (b'2 2\nthe \0\0\x80?\0\0\0@\nlist \0\0', 'truncated in word 2: found'),
  ],
  ids=['ragged', 'nan', 'other words', 'truncated'],
)
def test_damaged_vectors_are_refused(maker, tmp_path, content, message):
  file = tmp_path / 'glove.txt'
  file.write_bytes(content)
  config = maker.config(
    'bcn', 'own sentences', **{'task.word_vectors': str(file)}
  )
  with pytest.raises(ValueError, match=message):
    runs.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_weights_that_hold_no_language_model(maker, swept, tmp_path):
  alone = tmp_path / 'elmo'
  shutil.copytree(maker.weights('elmo')['init.weights'], alone)
  (alone / 'options.json').unlink()
  for weights, message in (
    (alone, 'options.json'),
    (swept[0][0], 'holds'),
    (tmp_path / 'none', 'none'),
  ):
    changes = {'init.weights': str(weights)}
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
      runs.train(
        maker.config('bcn', 'own sentences', **changes), tmp_path / 'run'
      )
    assert str(weights) in str(error.value)
  assert not (tmp_path / 'run').exists()


def test_a_model_has_its_own_recipe():
  with pytest.raises(ValueError, match='model=bcn has a recipe of its own'):
    settings.load_config('transfer:task=sst5,model=bcn,recipe=frozen')
