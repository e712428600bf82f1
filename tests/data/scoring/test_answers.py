"""From logits to answers; those of other kinds are in the tests of the rows."""

import numpy as np
import scored_cases as cases
import small_documents

from data.scoring import answers, kinds
from data.tasks.examples import Prediction


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
