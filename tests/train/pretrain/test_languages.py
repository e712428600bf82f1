"""Pre-training on several languages."""

import json
import pydoc_data.topics

import ml_collections
import pytest
import runs
from text_stores import build_quietly

from train.pretrain import job, run_stores

# Meshes have tests of their own.
pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def config(small_config, tmp_path_factory):
  """Returns a function (overrides) -> config of three languages."""
  folder = tmp_path_factory.mktemp('texts')
  topics = list(pydoc_data.topics.topics.values())
  for name, part in (('aa', topics[:40]), ('bb', topics[40:62])):
    (folder / f'{name}.txt').write_text(
      ''.join(f'== topic\n{text}\n' for text in part)
    )
  upside = [text[2000::-1].swapcase() for text in topics[62:66]]
  (folder / 'cc.txt').write_text(
    ''.join(f'== topic\n{text}\n' for text in upside)
  )

  def make(**overrides):
    return small_config(
      data__source=','.join(
        f'{name}={folder}/{name}.txt' for name in ('aa', 'bb', 'cc')
      ),
      data__tokenizer='train:wordpiece:500:cased',
      data__folder=str(folder / 'store'),
      data__held_out=0.1,
      optim__schedule='constant',
      **overrides,
    )

  return make


def test_a_store_of_a_run_older_than_the_exponent_opens(config):
  older = ml_collections.ConfigDict(config().to_dict())
  run_stores.open_store(older)
  del older.data.language_exponent
  assert run_stores.open_store(older).languages == ('aa', 'bb', 'cc')


@pytest.mark.slow
def test_each_language_is_audited_and_scored(config, tmp_path, capsys):
  results = runs.train(config(train__steps=4), tmp_path)
  shares = json.loads((tmp_path / 'languages.json').read_text())
  assert list(shares) == ['aa', 'bb', 'cc']
  rows = [row['length 32'] for row in shares.values()]
  for total in ('share', 'sampled'):
    assert sum(row[total] for row in rows) == pytest.approx(1)
  smoothed = [row['share'] ** 0.7 for row in rows]
  for row, smooth, whole in zip(rows, smoothed, shares.values(), strict=True):
    assert row['sampled'] == pytest.approx(smooth / sum(smoothed))
    passes = 4 * 16 * row['sampled'] / row['windows']
    assert whole['passes'] == pytest.approx(passes)
  printed = capsys.readouterr().err
  assert 'Languages at length 32, data.language_exponent=0.7' in printed
  assert '; perplexity by language, lowest first: ' in printed
  for name in shares:
    loss = results['metrics'][f'eval/languages/{name}/mlm_loss']
    assert 0 < loss < 10
  other = config(train__steps=8, data__language_exponent=0.3)
  with pytest.raises(ValueError, match='language_exponent: 0.7 there, 0.3'):
    job.make(other, tmp_path)


def test_a_stage_of_a_store_without_languages_has_its_plan(
  config, tmp_path, capsys
):
  main = run_stores.open_store(config())
  text = ''.join(pydoc_data.topics.topics.values())
  (tmp_path / 'text.txt').write_text(text.replace('. ', '. \t')[:200_000])
  build_quietly(
    tmp_path / 'text.txt',
    str(main.folder),
    tmp_path / 'store',
    held_out=0.1,
    document_break='\\w',
    unit_source='file',
  )
  stage = 2, 32, 16, 'continue', f'stored:{tmp_path}/store'
  phases = config(train__phases=(stage[:4], stage))
  job.make(phases, tmp_path / 'run').print_plan(tmp_path / 'run', True)
  printed = capsys.readouterr().err
  assert 'unit stored:' in printed and 'Languages at' not in printed


def test_a_language_too_short_for_its_part_of_a_batch(config, tmp_path):
  job.make(config(), tmp_path)
  short = config(
    data__language_exponent=0.0,
    train__phases=((2, 32, 1024, 'continue'),),
  )
  message = r"language 'cc' has \d+ training windows of 32 .* \(33.3%\) of a"
  with pytest.raises(ValueError, match=message):
    job.make(short, tmp_path)
