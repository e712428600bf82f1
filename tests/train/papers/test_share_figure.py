"""Curves by the share of the training set: commands, drawing, what lacks."""

import json
import re

import matplotlib.image
import numpy as np
import pytest
from etils import epath
from fake_tables import Fake

from configs.tables import base
from data.tasks import registry
from train.papers import share_figure, table_plan, table_rows, tables
from train.papers.table_figures import Figure
from train.run import settings

TABLE = table_rows.load_table('elmo/sample_efficiency')
STEM = 'elmo_sample_efficiency'
WEIGHTS = {'ELMo': 'e', 'without ELMo': 'v'}
SHARES = [row.share for row in TABLE.rows]
TASKS = [column.parts[0].task for column in TABLE.columns]


# OntoNotes' number of examples is that of its files.
COUNTED = 1234


@pytest.fixture(autouse=True)
def counted(monkeypatch):
  table_plan.count_examples.cache_clear()
  load = registry.load

  def fake_load(task, source, split):
    assert (task.name, source, split) == ('srl', 'sets', 'train')
    return range(COUNTED)

  monkeypatch.setattr(registry, 'load', fake_load)
  yield
  monkeypatch.setattr(registry, 'load', load)
  table_plan.count_examples.cache_clear()


class Curved(Fake):
  """Sweeps that score higher with more examples, and highest with ELMo."""

  @property
  def engine(self):
    return super().engine._replace(
      family_of={'e': 'elmo', 'v': base.VECTORS}.get,
      has_split=lambda *_: True,
    )

  def run(self, run):
    super().run(run)
    summary = json.loads(run.summary.read_text())
    gain = 0.05 * np.log10(run.line.row.share) + 0.1 * (
      run.line.family == 'elmo'
    )
    for each in summary['runs']:
      each['metrics'] = {k: v + gain for k, v in each['metrics'].items()}
    run.summary.write_text(json.dumps(summary))


def make(fake, out, weights=None, overrides=None, seeds=2, **options):
  request = table_plan.CellRequest(
    TABLE, epath.Path(out), 'sets', seeds, overrides or {}
  )
  weights = WEIGHTS if weights is None else weights
  return tables.make_table(request, weights, engine=fake.engine, **options)


def read(out):
  return json.loads((out / f'{STEM}.json').read_text())


def test_every_point_has_a_command(tmp_path, capsys):
  vectors = {'task.word_vectors': 'glove.txt'}
  assert make(Curved(), tmp_path, overrides=vectors, dry_run=True)
  commands = capsys.readouterr().out.splitlines()
  assert len(commands) == len(SHARES) * len(TASKS) * 2
  assert not list(tmp_path.iterdir())
  assert len(
    {command.partition('--workdir')[2] for command in commands}
  ) == len(commands)
  esim = (
    ' --config.task.mix_at=both --config.task.mix_layer_norm=True'
    ' --config.task.mix_l2=0.001'
  )
  start = 'python -m train.sweep --config transfer:task={},model=esim'
  folder = f'{tmp_path}/{STEM}'
  for task, reads, options, limit, name in (
    # 0.1 % of 549,367 pairs.
    ('snli', 'init.weights=e', esim, 549, 'ELMo_0.1'),
    ('snli', 'task.word_vectors=v', '', 549, 'without_ELMo_0.1'),
    ('scitail', 'init.weights=e', esim, 708, 'ELMo_3'),
    ('scitail', 'task.word_vectors=v', '', None, 'without_ELMo_100'),
  ):
    limited = f' --config.data.train_limit={limit}' if limit else ''
    own = ' --config.task.word_vectors=glove.txt' if options else ''
    assert (
      commands.count(
        f'{start.format(task)} --config.{reads} --config.data.source=sets'
        f'{options}{own}{limited} --seeds 2 --workdir {folder}/{name}/{task}'
      )
      == 1
    )


def test_shares_are_of_all_examples_and_training_is_as_of_all():
  request = table_plan.CellRequest(TABLE, epath.Path('out'), 'sets')
  lines = table_rows.find_lines(
    TABLE, request.folder, WEIGHTS, {'e': 'elmo', 'v': base.VECTORS}.get
  )
  limits, others = {task: set() for task in TASKS}, {}
  for cell in table_plan.find_cells(request, lines, lambda *_: True):
    (run,) = cell.runs
    assert not cell.reason
    config = settings.flatten(table_plan.resolve(run))
    limits[run.part.task].add(config.pop('data.train_limit'))
    # All else is the same at each share.
    of = cell.line.family, run.part.task
    assert others.setdefault(of, config) == config
    if run.model.name == 'esim':
      # allennlp 0.9.0, training_config/esim.jsonnet
      epochs = config['train.num_epochs'], config['train.patience']
      assert epochs == (75, 5)
  for task, found in limits.items():
    size = registry.find(task).sizes.get('train', COUNTED)
    shares = {limit / size for limit in found - {None}}
    np.testing.assert_allclose(sorted(shares), SHARES[:-1], rtol=0.2)
    assert None in found  # all examples
  assert min(limits['srl'] - {None}) == 1


def test_without_its_files_a_set_is_not_counted(tmp_path):
  request = table_plan.CellRequest(TABLE, epath.Path(tmp_path), None)
  lines = table_rows.find_lines(
    TABLE, request.folder, {'ELMo': 'e'}, lambda _: 'elmo'
  )
  found = {
    (cell.line.name, cell.runs[0].part.task): cell
    for cell in table_plan.find_cells(request, lines, lambda *_: False)
  }
  for task, limit in (('snli', 549), ('srl', None)):
    cell = found['ELMo: 0.1 %', task]
    assert cell.reason == 'needs --data DIR'
    assert cell.runs[0].overrides['data.train_limit'] == limit


def test_curves_are_drawn_with_their_figures(tmp_path, capsys):
  fake = Curved()
  assert make(fake, tmp_path)
  assert len(fake.runs) == len(SHARES) * len(TASKS) * 2
  text = capsys.readouterr().out
  assert text == (tmp_path / f'{STEM}.md').read_text()
  assert '| ELMo: 0.1 % (ours) | 80.0 ± 1.4 | 80.0 ± 1.4 | 84.0 ± 1.4 |' in text
  assert '\n| 0.1 % |' not in text  # no published row
  found = read(tmp_path)
  assert (found['table'], found['source']) == (TABLE.id, TABLE.source)
  names = [(curve['column'], curve['name']) for curve in found['curves']]
  assert names == [
    (column.name, name) for column in TABLE.columns for name in WEIGHTS
  ]
  for curve in found['curves']:
    assert not curve['missing']
    assert [point['share'] for point in curve['points']] == SHARES
    gain = 0.1 * (curve['name'] == 'ELMo')
    for point in curve['points']:
      score = (
        (0.88 if 'f1' in curve['column'] else 0.84)
        + 0.05 * np.log10(point['share'])
        + gain
      )
      np.testing.assert_allclose(point['values'], [score, score + 0.02])
      assert point['mean'] == pytest.approx(score + 0.01)
      assert point['std'] == pytest.approx(0.01 * 2**0.5)
      assert point['train_size'] == 3668
  image = matplotlib.image.imread(tmp_path / f'{STEM}.png')
  assert image.shape[1] > 4 * 800 and image.shape[0] > 600
  # A second call finds all of it, and only draws.
  make(fake, tmp_path)
  assert len(fake.runs) == len(SHARES) * len(TASKS) * 2


def test_missing_points_are_named(tmp_path, capsys):
  fake = Curved()
  make(fake, tmp_path, run=False)
  assert not (tmp_path / f'{STEM}.png').exists()
  assert 'is not drawn: no point' in capsys.readouterr().err
  make(
    fake, tmp_path, {'ELMo': 'e'}, only=['ELMo: 1 %,snli', 'ELMo: 10 %,snli']
  )
  assert fake.runs == [('ELMo: 1 %', 'snli'), ('ELMo: 10 %', 'snli')]
  text = (tmp_path / f'{STEM}.md').read_text()
  assert 'ELMo: 1 % (scitail/accuracy): has not been run: scitail' in text
  assert 'ELMo: 100 % (snli/accuracy): has not been run: snli' in text
  snli, scitail, *_ = read(tmp_path)['curves']
  assert [point['share'] for point in snli['points']] == [0.01, 0.1]
  assert snli['missing'][-1] == {
    'share': 1.0,
    'reason': 'has not been run: snli',
  }
  assert not scitail['points'] and len(scitail['missing']) == len(SHARES)
  # One panel, of the task that has points.
  image = matplotlib.image.imread(tmp_path / f'{STEM}.png')
  assert image.shape[1] < 1200

  def fail(run):
    raise ValueError('train.tsv, line 3: found 4 columns, expected 5')

  engine = fake.engine._replace(run=fail)
  request = table_plan.CellRequest(TABLE, epath.Path(tmp_path), 'sets', 2)
  only = ['ELMo: 100 %']
  assert not tables.make_table(request, {'ELMo': 'e'}, only=only, engine=engine)
  reason = read(tmp_path)['curves'][0]['missing'][-1]['reason']
  assert reason == 'failed: train.tsv, line 3: found 4 columns, expected 5'
  # Without its weights, a curve of before is drawn, and says what it needs.
  make(fake, tmp_path, {}, run=False)
  (snli, *_) = read(tmp_path)['curves']
  assert [point['share'] for point in snli['points']] == [0.01, 0.1]
  assert {each['reason'] for each in snli['missing']} == {
    'has not been run',
    'was begun before, and needs its weights again',
  }


def test_curves_stand_where_their_figures_are(tmp_path):
  """A curve of 50 and 90 %, another of 70 %: heights and places of colours."""
  column = TABLE.columns[0]
  points = {0.01: Figure((0.5,)), 1.0: Figure((0.88, 0.92))}
  curves = [
    share_figure.Curve('A', column, points, {0.1: 'has not been run'}),
    share_figure.Curve('B, $x', column, {0.1: Figure((0.7,))}, {}),
  ]
  path = epath.Path(tmp_path / 'a.png')
  share_figure.draw(curves, path)
  image = matplotlib.image.imread(path)[..., :3]
  height, width, _ = image.shape
  blue, orange = (
    np.abs(image - np.array(colour) / 255).sum(-1) < 0.05
    for colour in ((31, 119, 180), (255, 127, 14))
  )
  # Behind the legend, at the right and below, lies no point.
  for colours in (blue, orange):
    colours[int(0.6 * height) :, int(0.6 * width) :] = False
  y, x = np.nonzero(blue)
  assert y[x < 0.3 * width].mean() > y[x > 0.8 * width].mean() + 0.4 * height
  y_B, x_B = np.nonzero(orange)
  # 10 % lies in the middle of 1 % and 100 %: the axis is logarithmic.
  middle = (x.min() + x.max()) / 2
  assert abs(x_B.mean() - middle) < 0.03 * width
  assert y.min() < y_B.mean() < y.max()


@pytest.mark.parametrize(
  ('weights', 'overrides', 'message'),
  [
    ({}, {}, 'a curve for each of your weights: expected --weights NAME='),
    (None, {'data.train_limit': 5}, 'each row has its share of the training'),
  ],
)
def test_bad_input_is_refused(tmp_path, weights, overrides, message):
  fake = Curved()
  with pytest.raises(ValueError, match=re.escape(message)):
    make(fake, tmp_path, weights, overrides)
  assert not fake.runs and not list(tmp_path.iterdir())


def test_a_drawing_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
  make(Curved(), tmp_path, {'ELMo': 'e'}, only=['ELMo: 1 %'])
  before = (tmp_path / f'{STEM}.png').read_bytes()

  def fail(self, file, **options):
    file.write(b'half')
    raise OSError('No space left on device')

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', fail)
  with pytest.raises(OSError, match='No space'):
    make(Curved(), tmp_path, {'ELMo': 'e'}, run=False)
  assert (tmp_path / f'{STEM}.png').read_bytes() == before
  assert not list(tmp_path.glob('.*'))
