"""Sentence vectors on STS-B and MRPC: figures by SciPy and scikit-learn."""

import json
import shutil

import numpy as np
import pytest
import small_published
from scipy import stats
from sklearn import metrics

from data.tasks import registry
from data.vocabulary import tokenization
from train import similarity
from train.meanings import inputs, sentence_scores, sentence_vectors
from train.vectors.trained_model import TrainedModel

NOUNS = 'value class list name function object module'.split()


@pytest.fixture(scope='module')
def glue(tmp_path_factory):
  """A folder of small sets of pairs of texts."""
  folder = tmp_path_factory.mktemp('glue')
  chance = np.random.default_rng(0)

  def texts():
    return [' '.join(chance.choice(NOUNS, chance.integers(2, 9))) for _ in '12']

  (folder / 'STS-B').mkdir()
  for split in ('dev', 'test'):
    rows = ['index\tsentence1\tsentence2\tscore']
    for i in range(12):
      rows.append('\t'.join([str(i), *texts(), f'{chance.integers(6)}']))
    if split == 'test':
      rows = [row.rpartition('\t')[0] for row in rows]
    (folder / f'STS-B/{split}.tsv').write_text('\n'.join(rows) + '\n')
  (folder / 'MRPC').mkdir()
  for name in ('train.tsv', 'dev.tsv', 'msr_paraphrase_test.txt'):
    rows = ['Quality\t#1 ID\t#2 ID\t#1 String\t#2 String']
    for i in range(16):
      label = str(chance.integers(2))
      rows.append('\t'.join([label, str(i), str(i), *texts()]))
    (folder / 'MRPC' / name).write_text('\n'.join(rows) + '\n')
  return folder


@pytest.fixture(scope='module')
def bert_without_nsp(small_store, tmp_path_factory):
  folder = tmp_path_factory.mktemp('published') / 'other'
  tokenizer = tokenization.load(small_store)
  small_published.write_bert(folder, tokenizer, num_hidden_layers=1)
  return folder


def test_figures(small_bert, glue, capsys):
  sets = inputs.read_sets(str(glue))
  # GLUE's test set of STS-B has no labels, Microsoft's of MRPC has.
  assert {name: list(splits) for name, splits in sets.items()} == {
    'stsb': ['dev'],
    'mrpc': ['train', 'dev', 'test'],
  }
  found = TrainedModel(small_bert)
  figures = sentence_scores.compare([('small', found)], sets)
  (model,) = figures['models']
  cosines = {
    (name, split): sentence_vectors.compare(found, [x.texts for x in examples])
    for name, splits in sets.items()
    for split, examples in splits.items()
  }
  for p, pool in enumerate(sentence_vectors.POOLS):
    stsb, mrpc = (model['sets'][name]['vectors'][pool] for name in sets)
    dev = []
    for number in range(3):
      gold = [example.label for example in sets['stsb']['dev']]
      values = cosines['stsb', 'dev'].values[:, p, number]
      layer = stsb['layers'][number]['dev']
      if (pool, number) == ('cls', 0):  # the same vector in every text
        assert layer == {'spearman': 0, 'pearson': 0} and set(values) == {1}
      else:
        for metric, expected in (
          ('spearman', stats.spearmanr(gold, values)),
          ('pearson', stats.pearsonr(gold, values)),
        ):
          assert layer[metric] == pytest.approx(expected.statistic)
      layer = mrpc['layers'][number]
      for split, examples in sets['mrpc'].items():
        gold = [example.label == '1' for example in examples]
        values = cosines['mrpc', split].values[:, p, number]
        answers = values >= layer['threshold']
        assert layer[split]['accuracy'] == metrics.accuracy_score(gold, answers)
        assert layer[split]['f1'] == pytest.approx(
          metrics.f1_score(gold, answers, zero_division=0)
        )
        if split == 'train':
          tried = [np.equal(values >= t, gold).mean() for t in [*values, 2]]
          assert layer[split]['accuracy'] == max(tried)
      dev.append(mrpc['layers'][number]['dev']['accuracy'])
    assert mrpc['last'] == 2 and dev[mrpc['best']] == max(dev)
  assert registry.find('stsb').title in sentence_scores.as_text(figures)


def test_two_models_side_by_side(
  small_bert, bert_without_nsp, glue, run_command
):
  arguments = (small_bert, '--compare', glue, '--beside', bert_without_nsp)
  figures = json.loads(run_command(similarity, *arguments, '--json').out)
  assert [model['weights'] for model in figures['models']] == [
    str(small_bert),
    str(bert_without_nsp),
  ]
  assert figures['pairs']['mrpc'] == {'train': 16, 'dev': 16, 'test': 16}
  text = run_command(similarity, *arguments).out
  rows = [
    [cell.strip() for cell in line.strip('|').split('|')]
    for line in text.splitlines()
    if line.startswith('|')
  ]
  assert rows[0] == [
    'vector, layer',
    *(f'{n}: {name}' for n in (1, 2) for name in ('layer', 'dev', 'test')),
  ]
  table = {row[0]: row[1:] for row in rows[2:]}
  assert len(table) == 16  # 2 sets x 4 pools x last and best
  first, second = (model['sets'] for model in figures['models'])
  for sets, cells in ((first, slice(0, 3)), (second, slice(3, 6))):
    best = sets['mrpc']['vectors']['cls']
    layer = best['layers'][best['best']]
    shown = table['MRPC, [CLS], best on dev'][cells]
    assert shown == [
      str(best['best']),
      *(
        f'{100 * layer[split]["accuracy"]:.1f} / {100 * layer[split]["f1"]:.1f}'
        for split in ('dev', 'test')
      ),
    ]
  assert table['STS-B, mean, last'][2] == '-'


def test_bad_input(small_bert, small_elmo_folder, glue, run_command, tmp_path):
  with pytest.raises(
    SystemExit, match='holds an elmo, which has vectors of wor'
  ):
    run_command(
      similarity, small_bert, '--compare', glue, '--beside', small_elmo_folder
    )
  shutil.copytree(glue / 'MRPC', tmp_path / 'MRPC')
  with pytest.raises(SystemExit, match='task stsb: found no dev.tsv'):
    run_command(similarity, 'none', '--compare', tmp_path)
