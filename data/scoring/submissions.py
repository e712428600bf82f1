"""Files of predictions in the formats that the official scorers read."""

import csv
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from etils import epath

from data import scratch
from data.by_name import ByName
from data.scoring import kinds, scores
from data.tasks.examples import Example, Prediction, Task, needs_labels

# task -> its file in GLUE's zip (gluebenchmark.com/faq).
_GLUE_FILES = {
  'cola': 'CoLA.tsv',
  'sst2': 'SST-2.tsv',
  'mrpc': 'MRPC.tsv',
  'stsb': 'STS-B.tsv',
  'qqp': 'QQP.tsv',
  'mnli': 'MNLI-m.tsv',
  'qnli': 'QNLI.tsv',
  'rte': 'RTE.tsv',
  'wnli': 'WNLI.tsv',
  'diagnostic': 'AX.tsv',
}
_GLUE_WORDS = ('mnli', 'qnli', 'rte', 'diagnostic')  # labels are not numbers
Pairs = list[tuple[Any, Prediction]]


def check_format(
  task: Task, path: epath.PathLike, split: str, *, n_best: bool = False
) -> None:
  """Raises ValueError if the format, or `n_best`, does not fit the task."""
  path = epath.Path(path)
  endings = (*_formats_of(task), '.jsonl')
  if path.suffix not in endings:
    raise ValueError(
      f'{path}: found the ending {path.suffix!r}, expected '
      f'{" or ".join(endings)} for the predictions of {task.name}'
    )
  if path.suffix == '.zip' and needs_labels(split):
    raise ValueError(
      f'{path}: found answers of the split {split!r}, expected those of a test '
      'set: the zip is for the leaderboard'
    )
  if n_best and not kinds.KINDS[task.kind].has_n_best:
    raise ValueError(
      f'--n_best and --null_odds are of questions, {task.name} is of the kind'
      f' {task.kind}'
    )


def write(
  task: Task,
  split: str,
  examples: Sequence[Example],
  predictions: Iterable[Prediction],
  path: epath.PathLike,
  *,
  n_best_path: epath.PathLike | None = None,
  null_odds_path: epath.PathLike | None = None,
) -> None:
  """Writes predictions in the format of the path's ending.

    .zip: of GLUE; one process at a time puts the task's file in, beside others.
    .tsv: of GLUE, the task's file alone: index, prediction.
    .json: of SQuAD, question -> answer.
    .csv: of SWAG as its authors write it: row number, `pred`.
    .txt, .conll: for conlleval: words, their columns, right tag if known,
      predicted tag. White space in a word becomes `_`, and each of several
      documents begins with a -DOCSTART- line.
    .txt, .conll: of coreference, CoNLL-2012's columns for the reference scorer.
    .props, .txt: of roles, for srl-eval.pl of CoNLL-2005: the predicates'
      lemmas, and a column of predicted roles for each predicate. Sentences
      without predicates are written too.
    .jsonl: of any task: `id`, `answer` and, where predicted, `probabilities`,
      `n_best`, `no_answer`.

  Each file is complete or unchanged. `examples` are in the order of the file,
  `predictions` in any order, one an example. `n_best_path` gets JSON: question
  -> list of {text, probability}, the best first; `null_odds_path` JSON:
  question -> score of no answer minus the best answer's, for the official
  script's best threshold. Raises ValueError as `check` and `scores.match`.
  """
  check_format(task, path, split)
  path = epath.Path(path)
  found = scores.match(task, examples, predictions)
  bare = [x.id for x in found if x.no_answer is None]
  if null_odds_path is not None and bare:
    raise ValueError(
      f'{null_odds_path}: the prediction of {bare[0]!r} has no score of no '
      f'answer; expected one of each'
    )
  pairs = list(zip(examples, found, strict=True))
  formats = _formats_of(task) | {'.jsonl': _jsonl}
  text = formats[path.suffix](task, pairs)
  if path.suffix == '.zip':
    data = _with_member(path, glue_file(task, split), text)
  else:
    data = text.encode()
  scratch.write_bytes(path, data)
  if n_best_path is not None:
    n_best = {x.id: _texts(x) for x in found}
    scratch.write_bytes(epath.Path(n_best_path), _json(n_best).encode())
  if null_odds_path is not None:
    odds = {x.id: float(x.no_answer) for x in found}
    scratch.write_bytes(epath.Path(null_odds_path), _json(odds).encode())


def glue_file(task: Task, split: str) -> str:
  """Returns the name of a split's file in GLUE's zip."""
  if task.name == 'mnli' and 'mismatched' in split:
    return 'MNLI-mm.tsv'
  return _GLUE_FILES['diagnostic' if split == 'diagnostic' else task.name]


def _glue(task: Task, pairs: Pairs) -> str:
  """Returns index and prediction: the label, its number, or a score.

  Scores are clipped, unlike in run_glue: Pearson's fourth digit may differ.
  """

  def shown(answer: str | float) -> str:
    if not task.labels:
      low, high = task.score_range
      return f'{min(max(answer, low), high):.3f}'
    if task.name in _GLUE_WORDS:
      return answer
    return str(task.labels.index(answer))

  rows = [f'{example.id}\t{shown(found.answer)}' for example, found in pairs]
  return '\n'.join(['index\tprediction', *rows]) + '\n'


def _squad(task: Task, pairs: Pairs) -> str:
  del task
  return _json({example.id: found.answer for example, found in pairs})


def _swag(task: Task, pairs: Pairs) -> str:
  """Returns row numbers and answers: the official scorer reads no ids."""
  del task
  rows = [(i, int(found.answer)) for i, (_, found) in enumerate(pairs)]
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows([('', 'pred'), *rows])
  return text.getvalue()


def _conll(task: Task, pairs: Pairs) -> str:
  del task
  shows_documents = len({example.document for example, _ in pairs}) > 1
  lines, document = [], None
  for example, found in pairs:
    tags = (found.answer,)
    if example.tags is not None:
      tags = (example.tags, found.answer)
    columns = example.columns or ((),) * len(example.words)
    if shows_documents and example.document != document:
      outside = ('-X-',) * len(columns[0]) + ('O',) * len(tags)
      lines += [' '.join(('-DOCSTART-', *outside)), '']
      document = example.document
    for word, of_word, *of_tags in zip(
      example.words, columns, *tags, strict=True
    ):
      fields = (word, *of_word, *of_tags)
      lines.append(' '.join('_'.join(field.split()) for field in fields))
    lines.append('')
  return '\n'.join(lines) + '\n'


def _jsonl(task: Task, pairs: Pairs) -> str:
  return ''.join(
    json.dumps(_record(task, example, found), ensure_ascii=False) + '\n'
    for example, found in pairs
  )


def _record(task: Task, example: Example, found: Prediction) -> dict[str, Any]:
  """Returns the JSON object of a prediction."""
  kind = kinds.KINDS[task.kind]
  record = {'id': example.id, 'answer': kind.record(found.answer)}
  if hasattr(example, 'words'):
    record['words'] = list(example.words)
  if getattr(example, 'predicate', None) is not None:
    record['predicate'] = example.predicate
  if found.probabilities:
    values = [float(p) for p in found.probabilities]
    record['probabilities'] = kind.chances(task, found, values)
  if found.n_best:
    record['n_best'] = _texts(found)
  # JSON has no infinity, the score of a text without any span.
  if found.no_answer is not None and math.isfinite(found.no_answer):
    record['no_answer'] = float(found.no_answer)
  return record


def _texts(found: Prediction) -> list[dict[str, Any]]:
  return [{'text': text, 'probability': float(p)} for text, p in found.n_best]


# `submission` of a task -> ending -> text of the file.
_FORMATS: dict[str, dict[str, Callable[[Task, Pairs], str]]] = {
  'glue': {'.zip': _glue, '.tsv': _glue},
  'squad': {'.json': _squad},
  'swag': {'.csv': _swag},
  'conll': {'.txt': _conll, '.conll': _conll},
  '': {},
}
# Those of one corpus, imported when looked up: ending -> (task, pairs) -> text.
_OTHERS = ByName(
  {
    'props': 'data.scoring.roles:FORMATS',
    'coref': 'data.scoring.coreference:FORMATS',
  }
)


def _formats_of(task: Task) -> dict[str, Callable[[Task, Pairs], str]]:
  name = task.submission
  return _FORMATS[name] if name in _FORMATS else _OTHERS[name]


def _json(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False, indent=1) + '\n'


def _with_member(path: epath.Path, name: str, text: str) -> bytes:
  """Returns the zip file's bytes with one member added or replaced."""
  members = {}
  if path.exists():
    try:
      with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as old:
        members = {member: old.read(member) for member in old.namelist()}
    except zipfile.BadZipFile as error:
      raise ValueError(
        f'{path}: found a file that is no zip ({error}), expected one to put '
        f'{name} into, or none'
      ) from None
  members[name] = text.encode()
  data = io.BytesIO()
  with zipfile.ZipFile(data, 'w', zipfile.ZIP_DEFLATED) as new:
    for member, content in sorted(members.items()):
      # Without the time of day, equal predictions give equal bytes.
      info = zipfile.ZipInfo(member)
      info.compress_type = zipfile.ZIP_DEFLATED
      info.external_attr = 0o644 << 16
      new.writestr(info, content)
  return data.getvalue()
