"""From logits to answers; those of other kinds are in the tests of the rows."""

import types

import numpy as np
import scored_cases as cases
import small_documents

from data.scoring import answers, kinds
from data.tasks.examples import Prediction, TextExample


def test_links_make_clusters():
  task = cases.task('coreference', ('average_f1',))
  documents = [small_documents.document((9,), number=i) for i in range(3)]
  rows = [
    # Rows 0, 2 and 4 are one entity, row 1 stands alone, 3 and 5 are one.
    [(1, 2, -1), (1, 3, -1), (4, 4, 0), (0, 5, -1), (6, 8, 2), (7, 7, 3)],
    [(0, 0, -1), (2, 3, 0), (-1, -1, -1), (-1, -1, -1)],
    [(-1, -1, -1)],
  ]
  logits = [np.array(mentions, np.float32) for mentions in rows]
  outputs = answers.Outputs(task, documents, None, logits, None)
  found = kinds.decode(outputs)
  assert found == [
    Prediction('doc0', (((0, 5), (7, 7)), ((1, 2), (4, 4), (6, 8)))),
    Prediction('doc1', (((0, 0), (2, 3)),)),
    Prediction('doc2', ()),
  ]
  assert type(found[1].answer[0][0][0]) is int


def windows_of(task, rows, numbers):
  """Predictions of two examples, whose windows have the logits `rows`."""
  found = [TextExample(str(i), ('A text.',), None) for i in range(2)]
  features = types.SimpleNamespace(examples=np.array(numbers))
  logits = [np.array(row, np.float32) for row in rows]
  return kinds.decode(answers.Outputs(task, found, features, logits, None))


def test_predictions_of_windows_are_averaged():
  task = cases.task('classification', ('accuracy',), labels=('no', 'yes'))
  # The mean of 0.9 and 0.2, and of 0.6: as probabilities, not as logits.
  rows = [np.log([p, 1 - p]) for p in (0.9, 0.2, 0.4)]
  first, second = windows_of(task, rows, [0, 0, 1])
  assert (first.answer, second.answer) == ('no', 'yes')
  np.testing.assert_allclose(first.probabilities, (0.55, 0.45), rtol=1e-5)
  np.testing.assert_allclose(second.probabilities, (0.4, 0.6), rtol=1e-5)
  scores = cases.task('regression', ('pearson',))
  found = windows_of(scores, [[1.0], [2.0], [5.0]], [0, 1, 1])
  assert [prediction.answer for prediction in found] == [1.0, 3.5]
