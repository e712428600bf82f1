"""Coreference: the reference scorer's cases, answers, and files."""

import dataclasses
import itertools
import json

import numpy as np
import pytest
import scored_cases as cases
import small_documents

from data.scoring import coreference, kinds, scores, submissions
from data.tasks import registry
from data.tasks.annotated import coreference as files
from data.tasks.examples import Prediction

NAMES = {'muc': 'muc', 'bcub': 'b3', 'ceafe': 'ceafe'}
TASK = cases.task('coreference', files.METRICS, submission='coref')
# Figures of no scorer: 1 for MUC, beside BLANC's 0.29 and 0.51.
WRONG = {('B1', 'muc'): 1 / 3, ('C1', 'muc'): 1 / 2}


def read(path):
  """The clusters of a file of one document; repeated mentions stay first."""
  brackets, seen = files.Brackets(), set()
  lines = [line.split() for line in path.read_text().splitlines()]
  lines = [fields for fields in lines if fields and fields[0][0] != '#']
  for number, fields in enumerate(lines):
    brackets.read(str(path), number, fields[-1].strip('-'))
  clusters = []
  for mentions in brackets.found.values():
    clusters.append([m for m in mentions if m not in seen])
    seen.update(mentions)
  return [cluster for cluster in clusters if cluster]


def test_the_cases_of_the_reference_scorer(sesame_data):
  folder = sesame_data / 'coref_scorer_cases'
  expected = json.loads((folder / 'expected.json').read_text())
  assert len(expected) == 36
  checked = 0
  for case in expected:
    key, response = (read(folder / case[name]) for name in ('key', 'response'))
    measured = coreference.measure(
      TASK, [small_documents.document((50,), clusters=key)], [response]
    )(np.ones((1, 1)))
    for name in NAMES.keys() & case['metrics'].keys():
      figures = case['metrics'][name]
      figures = [WRONG.get((case['id'], name), figure) for figure in figures]
      found = [
        measured[f'{NAMES[name]}_{part}'][0]
        for part in ('recall', 'precision', 'f1')
      ]
      # Some are printed with 2 digits, all others with 5 or more.
      places = 0.005 if figures[2] == round(figures[2], 2) else 1e-5
      assert found == pytest.approx(figures, abs=places), case['id']
      checked += 1
  assert checked == 56


def by_definition(key, response):
  """Recall, precision of B3 and CEAF-e, mention by mention, pair by pair."""

  def of(mention, clusters):
    return next((set(c) for c in clusters if mention in c), set())

  mentions = [[m for c in clusters for m in c] for clusters in (key, response)]
  shared = [
    {m: len(of(m, key) & of(m, response)) for m in ms} for ms in mentions
  ]
  b3 = [
    np.mean([shared[i][m] / len(of(m, clusters)) for m in mentions[i]])
    for i, clusters in enumerate((key, response))
  ]
  small, large = sorted((key, response), key=len)
  best = max(
    sum(
      2 * len(set(a) & set(b)) / (len(a) + len(b))
      for a, b in zip(small, order, strict=False)
    )
    for order in itertools.permutations(large)
  )
  return *b3, best / len(key), best / len(response)


def pairs(count, lengths=(6, 7, 5)):
  """Documents with clusters, and answers that have some of them."""
  documents = [
    small_documents.document(lengths, number=i) for i in range(count)
  ]
  rng = np.random.default_rng(1)
  found = []
  for document in documents:
    other = small_documents.draw_clusters(rng, lengths)
    kept = document.clusters[1:]
    taken = {m for cluster in kept for m in cluster}
    other = (tuple(m for m in c if m not in taken) for c in other)
    found.append(kept + tuple(c for c in other if len(c) > 1))
  return documents, found


def test_figures_are_those_of_the_definitions():
  documents, found = pairs(30)
  names = ('b3_recall', 'b3_precision', 'ceafe_recall', 'ceafe_precision')
  for document, answer in zip(documents, found, strict=True):
    measured = coreference.measure(TASK, [document], [answer])(np.ones((1, 1)))
    expected = by_definition(document.clusters, answer)
    assert [measured[n][0] for n in names] == pytest.approx(expected)


def test_single_mentions_are_counted_beside():
  """As the reference scorer counts a key that has them."""
  documents, found = pairs(8)
  singles = ((40, 40), (41, 43))
  with_singles = [dataclasses.replace(documents[0], singles=singles)]
  with_singles += documents[1:]
  measure = coreference.measure(TASK, with_singles, found)(np.ones((1, 8)))
  plain = coreference.measure(TASK, documents, found)(np.ones((1, 8)))
  keys = [
    dataclasses.replace(
      document,
      clusters=(
        *document.clusters,
        *(((mention,)) for mention in document.singles),
      ),
    )
    for document in with_singles
  ]
  joined = coreference.measure(TASK, keys, found)(np.ones((1, 8)))
  for name in files.METRICS:
    assert measure[name] == plain[name]
    assert measure[f'{name}_with_singles'] == joined[name]
  assert joined['muc_f1'] == plain['muc_f1']  # it counts links
  assert joined['b3_recall'] < plain['b3_recall']


def test_sums_are_over_documents():
  documents, found = pairs(6)
  predictions = [
    Prediction(d.id, a) for d, a in zip(documents, found, strict=True)
  ]
  values = scores.score(TASK, documents, predictions)
  assert tuple(values) == (*files.METRICS, 'clusters')
  assert values['clusters'] == sum(map(len, found))
  f1 = [values[f'{name}_f1'] for name in ('muc', 'b3', 'ceafe')]
  assert values['average_f1'] == pytest.approx(np.mean(f1))
  assert 0 < min(f1) and max(f1) < 1
  measure = coreference.measure(TASK, documents, found)
  twice = coreference.measure(
    TASK, [*documents, documents[0]], [*found, found[0]]
  )
  weighted = measure(np.array([[2.0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]))
  repeated = twice(np.array([[1.0] * 7, [0, 1, 1, 1, 1, 1, 0]]))
  for name, value in weighted.items():
    np.testing.assert_allclose(value, repeated[name])
  bounds = scores.bootstrap(TASK, documents, predictions, resamples=200)
  low, high = bounds['average_f1']
  assert low < values['average_f1'] < high


def test_without_a_cluster_all_is_0():
  document = small_documents.document((4,), clusters=())
  assert set(
    scores.score(TASK, [document], [Prediction('doc0', ())]).values()
  ) == {0}


@pytest.mark.parametrize(
  ('answer', 'message'),
  [
    ((((0, 0),),), r'found the cluster \(\(0, 0\),\), expected two mentions'),
    ((((0, 0), (3, 4)),), r'found the mention \(3, 4\), expected its first'),
    ((((0, 0), (1, 2)),), r'found the mention \(1, 2\), expected words of one'),
    ((((0, 0), (0, 0)),), r'found the mention \(0, 0\) twice'),
    (((0, 1),), 'one cluster: no clusters'),
  ],
)
def test_wrong_answers_are_refused(answer, message):
  document = small_documents.document((2, 2), clusters=())
  with pytest.raises(ValueError, match=f'id .doc0.: found .* {message}'):
    kinds.check_answer(TASK, document, answer)


def test_an_ensemble_has_no_mean():
  rows = np.zeros((4, 3))
  with pytest.raises(ValueError, match='mine: an ensemble of coreference has'):
    kinds.average(TASK, [[rows], [rows]])


def test_a_written_file_is_read_with_the_same_clusters(
  sesame_data, tmp_path, capsys
):
  task = registry.find('coref_gum')
  documents = registry.load(task, str(sesame_data), 'dev')
  capsys.readouterr()
  path = tmp_path / 'dev.conll'
  found = [Prediction(d.id, d.clusters) for d in documents]
  submissions.write(task, 'dev', documents, found, path)
  assert not capsys.readouterr().err
  again = registry.read_file(registry.find('coref'), path, 'dev')
  assert [e.clusters for e in again] == [e.clusters for e in documents]
  assert [e.sentences for e in again] == [e.sentences for e in documents]
  assert again[0].id == f'{documents[0].id}; part 000'
  # The header of a key of CoNLL-2012 is kept.
  submissions.write(
    task, 'dev', again, [Prediction(e.id, ()) for e in again], path
  )
  assert path.read_text().splitlines()[0] == (
    f'#begin document ({documents[0].id}); part 000'
  )
  assert not any(
    e.clusters for e in registry.read_file(registry.find('coref'), path, 'dev')
  )


def test_files_of_clusters(tmp_path, capsys):
  document = small_documents.document((4, 2), clusters=(((0, 0), (4, 5)),))
  answer = (((0, 2), (1, 3)), ((1, 1), (1, 2), (5, 5)))
  path = tmp_path / 'x.txt'
  submissions.write(TASK, 'dev', [document], [Prediction('doc0', answer)], path)
  lines = [line.split('\t') for line in path.read_text().splitlines()]
  assert [line[-1] for line in lines] == [
    '#begin document (doc0); part 000',
    '(0',
    '(0|(1|(1)',
    '1)|0)',
    '0)',
    '',
    '-',
    '(1)',
    '',
    '#end document',
  ]
  assert lines[1][:3] == ['doc0', '0', '0']
  assert lines[6][9] == 'Ann'
  assert '1 pairs of mentions of one cluster cross' in capsys.readouterr().err
  path = tmp_path / 'x.jsonl'
  submissions.write(TASK, 'dev', [document], [Prediction('doc0', answer)], path)
  record = json.loads(path.read_text())
  assert record['answer'] == [[[0, 2], [1, 3]], [[1, 1], [1, 2], [5, 5]]]
  assert record['words'] == list(document.words)
