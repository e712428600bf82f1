"""What a person sees of a run follows from what it measures."""

import math

import ml_collections
import numpy as np
import pytest

from train.engine import evaluate, sharding
from train.host import console
from train.run import curves, metrics

MESH = {'data': -1, 'fsdp': 1, 'tensor': 1}
TIME = {'time/tokens_per_second': math.nan, 'time/mfu': math.nan}


def test_the_line_of_an_elmo_is_of_a_word():
  """20 words a row: the sum over them is what is minimised."""
  of_directions = {
    'forward': (8.1 * 640, 640.0),
    'backward': (8.3 * 640, 640.0),
  }
  step = {
    'sums': of_directions,
    'loss': 20 * (8.1 + 8.3) / 2,
    'grad_norm': 1.0,
    'learning_rate': 0.2,
  }
  row = metrics.training_row(step, tuple(of_directions))
  assert row['train/loss'] == pytest.approx(164)
  line = console.figures(row | TIME)
  assert line == 'loss backward 8.300, forward 8.100'
  one = {'train/lm_loss': 5.25, 'train/loss': 5.5, 'train/grad_norm': 1.0}
  assert console.figures(one | TIME) == 'loss 5.250'


class Objective:
  """Of an objective, what an evaluation asks for."""

  loss_names = ('mlm', 'order')
  perplexities = {'mlm': 'mlm_perplexity'}


def run(objective, **sums):
  """Returns the figures of two batches with these sums each."""
  sums = {name: np.array(pair, np.float32) for name, pair in sums.items()}
  mesh = sharding.make_mesh(ml_collections.ConfigDict(MESH))
  return evaluate.evaluate(
    lambda params, batch, carry: (sums, carry),
    None,
    {'': [{}, {}]},
    None,
    mesh,
    objective,
  )


def test_an_evaluation_has_the_perplexities_that_there_are():
  found = run(
    Objective, mlm=(2, 1), order=(1, 2), baseline=(6, 2), margin=(9, 2)
  )
  assert found == pytest.approx(
    {
      'eval/mlm_loss': 2,
      'eval/order_loss': 0.5,
      'eval/margin': 4.5,
      'eval/mlm_perplexity': math.exp(2),
      'eval/unigram_perplexity': math.exp(3),
      'eval/perplexity_ratio': math.exp(-1),
    }
  )
  assert curves.evaluation_line(7, found) == (
    'step 7: held-out perplexity 7.4 (unigram 20.1), margin 4.500'
  )
  # No token was masked.
  found = run(Objective, mlm=(0, 0), order=(1, 2), baseline=(0, 0))
  assert found == {'eval/order_loss': 0.5}
  assert curves.evaluation_line(7, found) == 'step 7: held-out order loss 0.500'


def test_an_evaluation_of_several_languages():
  mesh = sharding.make_mesh(ml_collections.ConfigDict(MESH))
  rows = np.ones(8)  # of 8 devices

  def score(params, batch, carry):
    mlm, weight = (float(batch[name][0]) for name in ('mlm', 'weight'))
    sums = {'mlm': (mlm, weight), 'order': (weight, weight)}
    sums['baseline'] = (8 * weight, weight)
    return {name: np.array(pair) for name, pair in sums.items()}, carry

  batches = {
    'de': [
      {'mlm': 6 * rows, 'weight': 3 * rows},
      {'mlm': 2 * rows, 'weight': rows},
    ],
    'zh': [{'mlm': 2 * rows, 'weight': 4 * rows}],
  }
  found = evaluate.evaluate(score, None, batches, None, mesh, Objective)
  assert found == pytest.approx(
    {
      'eval/mlm_loss': 10 / 8,
      'eval/mlm_perplexity': math.exp(10 / 8),
      'eval/order_loss': 1,
      'eval/unigram_perplexity': math.exp(8),
      'eval/perplexity_ratio': math.exp(10 / 8 - 8),
      'eval/languages/de/mlm_loss': 2,
      'eval/languages/de/mlm_perplexity': math.exp(2),
      'eval/languages/de/order_loss': 1,
      'eval/languages/zh/mlm_loss': 0.5,
      'eval/languages/zh/mlm_perplexity': math.exp(0.5),
      'eval/languages/zh/order_loss': 1,
    }
  )
  line = 'step 7: held-out perplexity 3.5 (unigram 2981.0)'
  assert curves.evaluation_line(7, found) == (
    f'{line}; perplexity by language, lowest first: zh 1.6, de 7.4'
  )
  for number in range(20):
    found[f'eval/languages/l{number}/mlm_perplexity'] = 2 + number
  assert curves.evaluation_line(7, found).endswith(': zh 1.6, l19 21.0')
  drawn = curves.panels(found)
  assert drawn['Held-out perplexity'] == [
    'eval/mlm_perplexity',
    'eval/unigram_perplexity',
  ]
  assert drawn['Loss'] == ['eval/mlm_loss', 'eval/order_loss']
  assert len(drawn['Held-out perplexity of languages']) == 22
  assert not drawn.keys() & {'Scores of dev', 'Other figures', 'Accuracy'}


def test_every_figure_of_any_run_has_its_curve():
  names = [
    *(
      f'{split}/{name}'
      for split in ('train', 'eval')
      for name in ('mlm_loss', 'order_loss', 'mlm_accuracy', 'margin')
    ),
    'eval/mlm_perplexity',
    'eval/unigram_perplexity',
    'eval/perplexity_ratio',
    'train/loss',
    'train/grad_norm',
    'train/learning_rate',
    'time/mfu',
    'eval/rte/loss',
    'eval/rte/accuracy',
    'eval/rte/f1/a group',
    'eval/panx_en/test@de/f1',
  ]
  drawn = curves.panels(names)
  assert drawn == {
    'Loss': [
      'train/mlm_loss',
      'train/order_loss',
      'eval/mlm_loss',
      'eval/order_loss',
      'eval/rte/loss',
    ],
    'Held-out perplexity': ['eval/mlm_perplexity', 'eval/unigram_perplexity'],
    'Scores of dev': ['eval/rte/accuracy', 'eval/rte/f1/a group'],
    'Scores of other languages': ['eval/panx_en/test@de/f1'],
    'Accuracy': ['train/mlm_accuracy', 'eval/mlm_accuracy'],
    'Other figures': ['train/margin', 'eval/margin'],
    'Learning rate': ['train/learning_rate'],
  }


def test_a_picture_names_its_run_and_the_last_values(tmp_path, monkeypatch):
  rows = 'step,metric,value\n' + ''.join(
    f'{step},{name},{value}\n'
    for step, name, value in (
      (5, 'train/mlm_loss', 7.25),
      (10, 'train/mlm_loss', 6.5),
      (10, 'eval/mlm_perplexity', 812.0),
      (10, 'eval/unigram_perplexity', 1500.0),
    )
  )
  workdir = tmp_path / 'my run'
  workdir.mkdir()
  (workdir / 'metrics.csv').write_text(rows)
  drawn = []
  monkeypatch.setattr(
    curves.pictures, 'save', lambda figure, *_, **__: drawn.append(figure)
  )
  curves.draw_curves(workdir)
  (figure,) = drawn
  assert figure.get_suptitle() == 'my run'
  loss, perplexity = figure.axes  # and no empty panel for the rate
  assert loss.get_legend_handles_labels()[1] == ['train/mlm_loss  6.5']
  (single, _) = perplexity.lines
  assert single.get_marker() == '.'
  assert loss.get_xlim() == perplexity.get_xlim() == (0, 10.2)
  ticks = [x.get_text() for x in perplexity.yaxis.get_ticklabels(minor=True)]
  assert not any('mathdefault' in text or 'times' in text for text in ticks)


def test_axes_are_in_plain_numbers_and_a_run_without_rows_has_none(
  tmp_path, monkeypatch
):
  drawn = []
  monkeypatch.setattr(
    curves.pictures, 'save', lambda figure, *_, **__: drawn.append(figure)
  )
  curves.draw_curves(tmp_path / '$a$')
  writer = metrics.MetricsWriter(tmp_path, step=0)
  for step in (400_000, 1_000_000):
    row = {'train/learning_rate': 1e-11 * step, 'train/mlm_loss': 1e7 + step}
    writer.write(step, row)
  writer.close()
  curves.draw_curves(tmp_path)
  empty, figure = drawn
  assert empty.get_suptitle() == r'\$a\$: no figures yet'
  assert not any(axes.axison for axes in empty.axes)
  figure.canvas.draw()
  for axes in figure.axes:
    for axis in (axes.xaxis, axes.yaxis):
      ticks = [tick.get_text() for tick in axis.get_ticklabels()]
      assert not axis.get_offset_text().get_text()
      assert not any('e' in tick for tick in ticks), ticks
    assert '1,000,000' in [tick.get_text() for tick in axes.get_xticklabels()]
