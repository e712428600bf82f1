"""The figure of learned weights of layers: numbers, drawing, refusals."""

import json
import os
import re
import sys

import matplotlib.image
import numpy as np
import pytest
from etils import epath
from mix_runs import NER, SST, SST_AGAIN, write_run, write_runs

from train import tables
from train.papers import layer_figure, layer_weights, table_rows
from train.run import command as run_command

TABLE = table_rows.load_table('elmo/layer_weights_figure')
FILES = [f'elmo_layer_weights_figure.{end}' for end in ('json', 'md', 'png')]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder of finished runs, see `write_runs`."""
  folder = tmp_path_factory.mktemp('runs')
  write_runs(folder)
  return folder


def softmax(weights):
  powers = np.exp(weights)
  return powers / powers.sum()


@pytest.fixture
def command(monkeypatch):
  """Returns a function (out, weights, options) that runs the command."""
  # The command's own would end this process after an error.
  monkeypatch.setattr(run_command, 'run', lambda job: job())

  def run(out, weights, *options):
    arguments = [f'--weights={text}' for text in weights]
    argv = ['tables', f'--table={TABLE.id}', f'--out={out}']
    monkeypatch.setattr(sys, 'argv', [*argv, *arguments, *options])
    tables.main()

  return run


def test_the_figure_of_two_models(folder, tmp_path, command, capsys):
  given = [
    *(f'SST-5={folder / name}' for name in ('sst', 'sst_again')),
    f'NER={folder}/ner/',
  ]
  command(tmp_path, given)
  text = (tmp_path / FILES[1]).read_text()
  assert capsys.readouterr().out == text
  assert '| SST-5 (2 runs) | 0.19 ± 0.03 | 0.68 ± 0.15 |' in text
  # A place has the columns of its deepest model.
  for columns in ('1 | 2', '1 | 2 | 3 | 4'):
    assert f'|  | token | {columns} | gamma |' in text
  assert '| NER | 0.08 | 0.21 | 0.58 | 0.13 | 0.00 | 0.75 |' in text
  assert f'NER (conll2003): {folder}/ner' in text
  # Each name and each place has its table, and NER is at the input alone.
  assert text.count('| SST-5') == 2 and text.count('| NER') == 1
  assert (tmp_path / 'elmo_layer_weights_figure.tex').exists()

  found = json.loads((tmp_path / FILES[0]).read_text())
  assert found['table'] == TABLE.id
  sst, ner = found['rows']
  assert (sst['name'], sst['task']) == ('SST-5', 'sst5')
  assert set(ner) == {'name', 'task', 'input'}
  np.testing.assert_allclose(ner['input']['weights'], softmax(NER['mix'][0]))
  assert ner['input']['gamma'] == 0.75 and ner['input']['std'] is None
  for place in ('input', 'output'):
    runs = [mixes[f'{place}/mix'] for mixes in (SST, SST_AGAIN)]
    # The mean of the normalised weights, which is not that of the learned ones.
    shares = [softmax(np.float64(np.float32(weights))) for weights, _ in runs]
    scales = [np.float32(scale) for _, scale in runs]
    of_place = sst[place]
    close = dict(rtol=1e-6)
    np.testing.assert_allclose(
      of_place['weights'], np.mean(shares, axis=0), **close
    )
    np.testing.assert_allclose(
      of_place['std']['weights'], np.std(shares, axis=0, ddof=1), **close
    )
    np.testing.assert_allclose(of_place['gamma'], np.mean(scales), **close)
    np.testing.assert_allclose(
      of_place['std']['gamma'], np.std(scales, ddof=1), **close
    )
    for run, name, share in zip(
      of_place['runs'], ('sst', 'sst_again'), shares, strict=True
    ):
      assert run['workdir'] == str(folder / name)
      np.testing.assert_allclose(run['weights'], share, **close)


def test_cells_have_the_colours_of_their_weights(tmp_path):
  """Rows are tasks, columns layers; a darker cell is a larger weight."""
  mixes = {
    'input': (layer_weights.Mix((0.1, 0.8, 0.1), 1.0),),
    'output': (layer_weights.Mix((0.6, 0.3, 0.1), 1.0),),
  }
  path = tmp_path / 'a.png'
  both = [
    layer_weights.WeightsRow('A', 'a', ('a',), mixes),
    layer_weights.WeightsRow(
      'B, $x_$', 'b', ('b',), {'input': mixes['output']}
    ),
  ]
  layer_figure.draw(both, epath.Path(path))
  image = matplotlib.image.imread(path)[..., :3]
  height, width, _ = image.shape

  def find(weight):
    """Returns where the panels have a weight's colour, as shares of them."""
    colour = matplotlib.colormaps['Blues'](weight / 0.8)[:3]  # 0.8 is darkest
    is_there = np.abs(image - colour).sum(-1) < 0.02
    y, x = np.nonzero(is_there[:, : int(0.85 * width)])  # without the scale
    return y / height, x / width

  # The largest is in one cell: A's at the input.
  y, x = find(0.8)
  assert len(x) > 5000
  assert x.max() < 0.45 and y.max() < 0.5
  # 0.6 is in two cells: A's at the output, B's at the input.
  y, x = find(0.6)
  assert len(x) > 10000
  assert x[y < 0.4].min() > 0.45
  assert x[y > 0.5].max() < 0.45


def test_a_dry_run_writes_nothing(folder, tmp_path, command, capsys):
  given = [f'NER={folder / "ner"}']
  command(tmp_path / 'out', given, '--dry_run')
  assert '| NER | 0.08 |' in capsys.readouterr().out
  assert not list(tmp_path.iterdir())


def test_bad_input_is_refused_before_anything_is_written(
  folder, tmp_path, command, capsys
):
  made = tmp_path / 'made'
  write_run(made / 'last', {'mix': (None, 1.0)}, features='last')
  write_run(made / 'begun', SST, finished=False)
  write_run(made / 'removed', SST, model=False)
  write_run(made / 'diverged', {'mix': ([0.0, np.nan], 1.0)})
  write_run(made / 'torn', SST)
  (path,) = (made / 'torn').glob('model/checkpoints/7/*/manifest.ocdbt')
  path.write_bytes(os.urandom(50))
  pretraining = made / 'pretraining'
  pretraining.mkdir()
  (pretraining / 'config.json').write_text('{"model": {"name": "bert"}}')
  published = made / 'published'
  published.mkdir()
  (published / 'config.json').write_text('{"model_type": "bert"}')
  empty, swept = made / 'empty', made / 'swept'
  empty.mkdir()
  swept.mkdir()
  (swept / 'summary.json').write_text(
    '{"runs": [{"folder": "seed=0", "metrics": {}}]}'
  )
  ner, sst = folder / 'ner', folder / 'sst'
  for given, options, message in (
    ([], [], 'is drawn from finished runs: expected --weights NAME=WORKDIR'),
    (
      [f'A={sst}'],
      ['--data=sets', '--seeds=2', '--config.train.seed=1'],
      'once or more, and not --data --seeds --config.train.seed=1',
    ),
    (['A='], [], 'expected WEIGHTS or NAME=WEIGHTS'),
    (
      [f'A={made}/none'],
      [],
      f'{made}/none: expected the workdir of a finished',
    ),
    ([f'A={empty}'], [], f'{empty}: expected the workdir of a finished'),
    ([f'A={published}'], [], f'{published}/config.json: not the config'),
    ([f'A={pretraining}'], [], f'{pretraining}: is a pre-training, expected'),
    ([f'A={made}/begun'], [], f'{made}/begun: the run is not finished'),
    ([f'A={made}/removed'], [], f'{made}/removed: its model was removed'),
    ([f'A={swept}'], [], f'{swept}: no run of this sweep has its model'),
    (
      [f'A={made}/last'],
      [],
      f'{made}/last: the model has no mix_weights, which a fine-tuning of'
      ' init.weights with --config.task.features=mix learns; its task.features'
      " is 'last' and its init.weights 'runs/elmo'",
    ),
    ([f'A={made}/diverged'], [], f'{made}/diverged: the parameters of mix are'),
    ([f'A={made}/torn'], [], f'{made}/torn/model/checkpoints: the checkpoint'),
    ([f'A={sst}', f'A={sst}/'], [], f'{sst} is given twice'),
    (
      [f'A={sst}', f'A={ner}'],
      [],
      f'--weights A={ner}: it has task conll2003, 5 layers at the input, and'
      f' {sst} of the same name has task sst5, 3 layers at the input, 3 layers'
      ' at the output: give them different names',
    ),
  ):
    out = tmp_path / 'out'
    # A sound run before it is no reason to write.
    given = [f'sound={ner}', *given] if given else []
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
      command(out, given, *options)
    assert '\n' not in str(raised.value)
    assert not capsys.readouterr().out
    assert not out.exists()
  file = tmp_path / 'file'
  file.write_text('')
  with pytest.raises(ValueError, match='is a file, expected a folder'):
    command(file, [f'A={sst}'])


def test_a_drawing_that_fails_leaves_the_old_one(folder, tmp_path, monkeypatch):
  given = [f'NER={folder / "ner"}']
  layer_figure.make(TABLE, tmp_path, weights=given)
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  assert sorted(path.name for path in before)[:3] == FILES

  def fail(self, file, **options):
    file.write(b'half')
    raise OSError('No space left on device')

  monkeypatch.setattr(matplotlib.figure.Figure, 'savefig', fail)
  with pytest.raises(OSError, match='No space'):
    layer_figure.make(TABLE, tmp_path, weights=[f'B={folder / "sst"}'])
  assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
