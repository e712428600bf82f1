"""Tags under a CRF on an encoder: loss and paths."""

import functools
import itertools

import jax
import numpy as np
import pytest
import runs
import small_kinds
import small_tasks
import word_runs

from data.tasks.examples import Task
from data.vocabulary import tag_schemes
from train.exports import folders
from train.params import opened
from train.run import settings
from train.transfer import predictors, tag_paths
from train.transfer.program import TaskProgram

pytestmark = pytest.mark.usefixtures('one_device')
SCHEMES = ('iob2', 'bioul')


@pytest.fixture(scope='module')
def config_of(small_bert, tmp_path_factory):
  """Returns a function (scheme) -> the config of a BERT's tagger."""
  folder = tmp_path_factory.mktemp('sets') / 'tags'
  changes = small_kinds.write(folder, 'own tags') | {
    'own.test': None,
    'train.steps': 60,
    'train.eval_every': 20,
    'train.global_batch': 8,
    'train.log_every': 20,
    'eval.global_batch': 8,
  }

  def make(scheme, **overrides):
    return small_tasks.small_config(
      folder, small_bert, **changes | {'task.crf': scheme} | overrides
    )

  return make


@pytest.fixture(scope='module')
def run_of(config_of, tmp_path_factory):
  """Returns a function (scheme) -> config and workdir of a finished run."""

  @functools.cache
  def run(scheme):
    # The encoder stays as it is in one of the two.
    config = config_of(scheme, task__frozen=scheme == 'bioul')
    workdir = tmp_path_factory.mktemp('runs') / scheme
    runs.train(config, workdir)
    return config, workdir

  return run


@pytest.mark.slow
@pytest.mark.parametrize('scheme', SCHEMES)
def test_a_run_learns_and_answers_again(run_of, tmp_path, scheme):
  config, workdir = run_of(scheme)
  found = word_runs.check_answers(config, workdir, tmp_path / 'a.jsonl')
  f1 = runs.train(config, workdir)['metrics']['eval/own/f1']  # is finished
  # The frozen one learns less, and rows that cut a span begin with B-.
  assert f1 > {'iob2': 0.7, 'bioul': 0.2}[scheme]
  assert {len(each.answer) for each in found} == {7, 40}


def test_a_frozen_encoder_is_below_a_trained_crf(run_of):
  config, workdir = run_of('bioul')
  job, begun = word_runs.begin(config)
  before = jax.device_get(begun.params)
  program = predictors.open_member(workdir).program
  after = jax.device_get(program.load(workdir))
  assert before.keys() == after.keys()
  for name in before.keys() - {'token_classifier', 'crf'}:
    jax.tree.map(np.testing.assert_array_equal, before[name], after[name])
  kept = opened.load_params(workdir / 'model')['crf']['transitions']
  np.testing.assert_array_equal(after['crf']['transitions'], kept)
  assert kept.shape == (9, 9)  # O, and four tags of two types
  moved = np.abs(kept - before['crf']['transitions'])
  assert (moved > 1e-4).mean() > 0.9


def scores_of(config, tmp_path, sentences):
  """Returns a job, a batch of sentences, and a wild model's outputs for it."""
  folder = tmp_path / 'set'
  folder.mkdir()
  records = [{'words': words, 'tags': tags} for words, tags in sentences]
  for split in ('train', 'dev'):
    small_tasks.write_jsonl(folder / f'{split}.jsonl', records)
  labels = ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC')
  changes = {'data.source': str(folder), 'own.labels': labels}
  job, begun = word_runs.begin(settings.with_overrides(config, changes))
  params = jax.device_get(begun.params)
  rng = np.random.default_rng(3)
  head = params['token_classifier']
  head['kernel'] = rng.normal(0, 1, head['kernel'].shape).astype(np.float32)
  (batch,) = job.tasks[0].splits['train'].batches.eval_batches(len(records))

  @jax.jit
  def score(params):
    outputs = job.tasks[0].apply(job.tasks[0].model, params, batch)
    return outputs, job.tasks[0].losses(outputs, batch)[0]['task']

  return job, batch, jax.device_get(score(params))


SENTENCES = [
  ('the function returns'.split(), ['O', 'B-PER', 'I-PER']),
  ('class deletes'.split(), ['B-LOC', 'O']),
  (['module'], ['B-PER']),
]


@pytest.mark.parametrize('scheme', SCHEMES)
def test_loss_is_that_of_all_paths_enumerated(config_of, tmp_path, scheme):
  """Pieces of a word after the first are no step of a path."""
  job, batch, (outputs, (value, weight)) = scores_of(
    config_of(scheme), tmp_path, SENTENCES
  )
  assert (batch['token_mask'].sum(axis=1) - 2 > batch['tag_mask'].sum(1)).any()
  labels = tag_paths.tag_labels(job.tasks[0].task, job.config.task)
  moves = outputs['transitions']

  def score(emissions, path):
    return emissions[np.arange(len(path)), path].sum() + sum(
      moves[a, b] for a, b in itertools.pairwise(path)
    )

  losses = []
  for row, example in enumerate(batch['example_ids']):
    emissions = outputs['emissions'][row][batch['tag_mask'][row]]
    tags = SENTENCES[example][1]
    if scheme == 'bioul':
      tags = tag_schemes.to_bioul(tags)
    paths = itertools.product(range(len(labels)), repeat=len(tags))
    every = [score(emissions, path) for path in paths]
    right = score(emissions, [labels.index(tag) for tag in tags])
    losses.append(np.logaddexp.reduce(every) - right)
  np.testing.assert_allclose(value, sum(losses), rtol=1e-5)
  assert weight == len(SENTENCES)
  # The loss of a batch is the sum.
  np.testing.assert_allclose(job.tasks[0].weights(batch)['task'], 1)


@pytest.mark.parametrize('scheme', SCHEMES)
def test_best_paths_obey_the_scheme(config_of, tmp_path, scheme):
  chance = np.random.default_rng(0)
  words = [*small_tasks.NOUNS, *small_tasks.GOOD, *small_tasks.BAD]
  sentences = [
    (list(chance.choice(words, size=9)), ['O'] * 9) for _ in range(12)
  ]
  job, batch, (outputs, _) = scores_of(config_of(scheme), tmp_path, sentences)
  labels = tag_paths.tag_labels(job.tasks[0].task, job.config.task)
  allowed = np.array(tag_schemes.allowed(labels))
  start, end = len(labels), len(labels) + 1

  def breaches(logits):
    count = 0
    for row, mask in zip(logits, batch['tag_mask'], strict=True):
      path = [start, *row[mask].argmax(axis=-1), end]
      assert len(path) == 11
      count += sum(not allowed[a, b] for a, b in itertools.pairwise(path))
    return count

  assert breaches(outputs['emissions']) > 12
  assert breaches(outputs['logits']) == 0


def test_a_tagger_with_a_crf_is_not_exported(run_of, tmp_path):
  _, workdir = run_of('iob2')
  with pytest.raises(ValueError, match='crf'):
    folders.export(workdir, tmp_path / 'exported')
  assert not (tmp_path / 'exported').exists()


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'task.crf': 'bilou'}, "task.crf='bilou': .*'iob2', 'bioul'"),
    (
      {'task.class_weights': (1.0,) * 5},
      "task.crf='bioul': expected no task.class_weights",
    ),
  ],
)
def test_keys_that_do_not_fit_a_crf(config_of, tmp_path, changes, message):
  with pytest.raises(ValueError, match=message):
    runs.train(config_of('bioul', **changes), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_a_text_has_no_crf(config_of, own_set, tmp_path):
  changes = {'own.kind': 'classification', 'data.source': str(own_set)}
  with pytest.raises(
    ValueError, match="task.crf='bioul': own is a task of the kind classificat"
  ):
    runs.train(config_of('bioul', **changes), tmp_path / 'run')


def make_task(labels, kind='tagging'):
  return Task(
    name='pos',
    title='Parts of speech',
    kind=kind,
    files={'train': (), 'dev': ()},
    rows=lambda file, split: [],
    labels=labels,
  )


def test_labels_that_mark_no_spans_have_no_such_scheme():
  task = make_task(('NOUN', 'VERB', 'ADJ'))
  whole = settings.load_config('transfer:task=sst2')
  config = whole.task
  config.crf = 'bioul'
  with pytest.raises(ValueError, match="pos mark no spans .'NOUN', ..*iob2"):
    tag_paths.check_crf(task, config)
  config.crf = 'iob2'
  tag_paths.check_crf(task, config)
  assert np.all(tag_paths.transitions(task, config))
  assert TaskProgram(whole, task).num_outputs == 3
