"""Runs that train in one language and score others, end to end."""

import json
import random
import types

import pytest
import runs
import small_tasks

from data.tasks import registry
from train.run import metrics, workdirs
from train.transfer import (
  finetune,
  predictors,
  sweep,
  task_data,
  task_outputs,
  task_plan,
)

pytestmark = pytest.mark.usefixtures('one_device')
# Language -> sentences of dev and test: German has both, Chinese dev alone,
# French test alone.
SIZES = {'en': (12, 0), 'de': (16, 20), 'zh': (14, 0), 'fr': (0, 10)}
TAGS = {'function': 'B-PER', 'class': 'B-LOC', 'returns': 'B-ORG'}
CHANGES = {'de': {'class': 'B-PER'}, 'zh': {'function': 'O'}}


def write_panx(folder):
  """German and Chinese tag one of three words in another way."""
  (folder / 'panx').mkdir(parents=True)
  chance = random.Random(0)
  files = {'train-en': 48} | {
    f'{split}-{language}': count
    for language, counts in SIZES.items()
    for split, count in zip(('dev', 'test'), counts, strict=True)
    if count
  }
  for name, count in files.items():
    language = name[-2:]
    tags = TAGS | CHANGES.get(language, {})
    sentences = [
      ''.join(
        f'{language}:{word}\t{tags.get(word, "O")}\n'
        for word in chance.choices(small_tasks.NOUNS + small_tasks.GOOD, k=6)
      )
      for _ in range(count)
    ]
    (folder / 'panx' / f'{name}.tsv').write_text('\n'.join(sentences))
  return folder


@pytest.fixture(scope='module')
def make(tmp_path_factory, small_bert):
  """Returns a function (overrides) -> config of six evaluations."""
  folder = write_panx(tmp_path_factory.mktemp('languages') / 'sets')

  def config(**overrides):
    changes = {
      'task__name': 'panx_en',
      'task__test_languages': ('de', 'zh', 'fr'),
      'own__test': None,
      'optim__learning_rate': 8e-3,
      'train__steps': 24,
      'train__global_batch': 8,
      'train__eval_every': 4,
    }
    return small_tasks.small_config(folder, small_bert, **changes | overrides)

  return config


@pytest.fixture(scope='module')
def run(make, tmp_path_factory):
  """A finished run: its workdir and its results."""
  workdir = tmp_path_factory.mktemp('runs') / 'seed=0'
  return workdir, runs.train(make(), workdir)


def test_english_dev_chooses_and_the_oracle_is_told(run, capsys):
  workdir, results = run
  figures = {
    name.removeprefix('eval/panx_en/'): value
    for name, value in results['metrics'].items()
  }

  def history(name):
    return metrics.history(workdir, f'eval/panx_en/{name}', 24)

  english = history('f1')
  assert len(english) == 6 and max(english) > 0.5  # it learns
  chosen = english.index(max(english))
  assert results['best_step'] == 4 * (chosen + 1)
  for name in ('dev@de/f1', 'test@de/f1', 'dev@zh/f1'):
    assert figures[name] == history(name)[chosen]
  german, chinese = history('dev@de/f1'), history('dev@zh/f1')
  assert len(set(german)) > 1  # not by chance
  best = german.index(max(german))
  assert figures['test@de/f1_oracle'] == history('test@de/f1')[best]
  assert figures['dev@zh/f1_oracle'] == max(chinese)
  assert not history('test@fr/f1') and 'test@fr/f1_oracle' not in figures
  # All metrics of the chosen model, and the intervals.
  assert {'dev@de/precision', 'test@fr/recall'} <= figures.keys()
  assert 'eval/panx_en/test@de/f1' in results['intervals']

  task_plan.print_results(results, workdir, of_several=False)
  lines = capsys.readouterr().out.splitlines()
  table = [line.split() for line in lines[lines.index('') :]]
  rows = {line[0]: line[1:] for line in table if line}
  shown = {name: f'{value:.4f}' for name, value in figures.items()}
  assert rows['en'] == [shown['f1'], '-', '-']
  names = ('dev@de/f1', 'test@de/f1', 'test@de/f1_oracle')
  assert rows['de'] == [shown[name] for name in names]
  oracle = shown['dev@zh/f1_oracle']
  assert rows['zh'][:3] == [shown['dev@zh/f1'], '-', oracle]
  assert ' '.join(rows['zh'][3:]) == '(of dev: there is no test set)'
  assert rows['fr'] == ['-', shown['test@fr/f1'], '-']


def test_predictions_are_written_by_language(run, make):
  workdir, results = run
  names = {path.name for path in (workdir / 'predictions').iterdir()}
  others = {'dev@de', 'test@de', 'dev@zh', 'test@fr'}
  assert names == {f'{name}.jsonl' for name in ('dev', *others)}
  # The model answers files of any language, found by their names.
  source = make().data.source
  task = registry.find('panx_en')
  assert registry.split_of(task, f'{source}/panx/test-de.tsv') == 'test@de'
  task, _, answers = predictors.predict(
    [workdir],
    lambda task: predictors.read_input(task, source, 'test@de'),
  )
  lines = (workdir / 'predictions' / 'test@de.jsonl').read_text().splitlines()
  assert [json.loads(line)['answer'] for line in lines] == [
    list(each.answer) for each in answers
  ]


def test_its_own_files_are_read_in_its_own_language(run):
  """As in the run, where a file holds several; any other may be asked for."""
  config = workdirs.read_config(run[0])
  config.task.name = 'xnli'
  task = task_data.reopen_task(config, {'task': 'xnli'})
  of_run = task_data.with_languages(config, registry.find('xnli'))
  assert task.rows is of_run.rows is not registry.find('xnli').rows
  assert task.languages == registry.find('xnli').languages
  config.task.test_languages = ()
  assert task_data.reopen_task(config, {'task': 'xnli'}) is registry.find(
    'xnli'
  )


@pytest.mark.slow
def test_a_run_killed_after_its_last_score_ends_alike(make, tmp_path):
  """Nothing is known of the scores of the model then but their figures."""
  config = make(
    task__test_languages=('de',), train__select='last', train__steps=4
  )
  results = runs.train(config, tmp_path)
  assert results['metrics'].keys() >= {'eval/panx_en/test@de/f1_oracle'}
  (tmp_path / 'results.json').unlink()
  again = runs.train(config, tmp_path)
  for key in ('metrics', 'intervals', 'state_sha256'):
    assert again[key] == results[key]


def test_a_sweep_has_the_languages_and_chooses_by_english(run, make):
  workdir, results = run
  summary = sweep.run(make(), workdir.parent, seeds=(0,))  # finished already
  assert {'dev/f1', 'dev@de/f1', 'test@de/f1', 'test@de/f1_oracle'} <= set(
    summary['mean']
  )
  assert summary['mean']['dev/f1'] == results['metrics']['eval/panx_en/f1']


def test_the_oracle_of_scores_made_by_hand():
  def split(name, is_labelled=True):
    return types.SimpleNamespace(name=name, is_labelled=is_labelled)

  splits = [
    split('train'),
    split('dev'),
    split('dev@de'),
    split('test@de'),
    split('dev@zh'),
    split('test@zh', False),
    split('test@fr'),
  ]
  task = types.SimpleNamespace(
    name='t',
    metrics=('f1', 'recall'),
    languages=dict.fromkeys(('de', 'zh', 'fr')),
  )
  program = types.SimpleNamespace(
    task=task, splits={each.name: each for each in splits}
  )
  history = {
    'eval/t/dev@de/f1': [0.1, 0.7, 0.7, 0.2],
    'eval/t/test@de/f1': [0.9, 0.4, 0.5, 0.6],
    'eval/t/dev@zh/f1': [0.3, 0.2, 0.8, 0.1],
  }
  assert task_outputs.oracles(program, history.__getitem__) == {
    'eval/t/test@de/f1_oracle': 0.4,  # the first best one, as a run keeps it
    'eval/t/dev@zh/f1_oracle': 0.8,
  }


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    (
      {'task__name': 'rte'},
      r"task\.test_languages=\('de',\): rte has files in one language; tasks"
      ' with several are ag_news, conll2003, panx_en, panx_zh, ud_pos, xnli',
    ),
    (
      {'task__name': 'own', 'own__kind': 'tagging'},
      r"test_languages=\('de',\): expected none with task\.name='own'",
    ),
    (
      {'task__test_languages': ('de', 'en')},
      'en is the language that panx_en trains on',
    ),
    ({'task__test_languages': ('xx', 'de')}, 'found xx, expected different'),
    ({'task__test_languages': ('de', 'de')}, 'found a language twice'),
  ],
)
def test_languages_that_cannot_be_scored(make, changes, message):
  config = make(**{'task__test_languages': ('de',)} | changes)
  with pytest.raises(ValueError, match=message):
    finetune.check_config(config)


@pytest.mark.parametrize(
  ('name', 'text', 'error', 'message'),
  [
    (
      None,
      '',
      FileNotFoundError,
      r"task\.test_languages=\('nl',\): nl: found no dev-nl\.tsv or nl/dev or"
      r' test-nl\.tsv or nl/test in .*/sets, .*PAN-X, nl',
    ),
    (
      'test-nl',
      'een\nzin\n',
      ValueError,
      r"task\.test_languages=\('nl',\): nl: test@nl of PAN-X, nl has no labels",
    ),
    (
      'test-nl',
      'een\tO\nzin\tB-MISC\n',
      ValueError,
      r"test-nl\.tsv, line 1: found the tag 'B-MISC', expected one of .*"
      r'\(the labels of panx_en; task\.test_languages reads this file\)',
    ),
  ],
)
def test_files_that_cannot_be_scored(
  make, tmp_path, small_bert, name, text, error, message
):
  folder = write_panx(tmp_path / 'sets')
  if name:
    (folder / 'panx' / f'{name}.tsv').write_text(text)
  config = make(task__test_languages=('nl',), data__source=str(folder))
  with pytest.raises(error, match=message):
    runs.train(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()
