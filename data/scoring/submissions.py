"""Files of predictions in the formats that the official scorers read."""

import csv
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from etils import epath

from data.scoring import matching
from data.tasks import checks
from data.tasks.examples import (
  ChoiceExample,
  Example,
  Prediction,
  SpanExample,
  TaggedExample,
  Task,
)

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
_ENDINGS = {
  'glue': ('.zip', '.tsv'),
  'squad': ('.json',),
  'swag': ('.csv',),
  'conll': ('.txt', '.conll'),
  '': (),
}

Pairs = list[tuple[Any, Prediction]]


def check(task: Task, path: epath.PathLike, split: str) -> None:
  """Refuses a path whose ending fits no format of the task or the split.

  Raises:
    ValueError: if so; it names the endings that fit.
  """
  endings = (*_ENDINGS[task.submission], '.jsonl')
  if epath.Path(path).suffix not in endings:
    raise ValueError(
      f'{path}: found the ending {epath.Path(path).suffix!r}, expected '
      f'{" or ".join(endings)} for the predictions of {task.name}'
    )
  if epath.Path(path).suffix == '.zip' and checks.is_labelled(split):
    raise ValueError(
      f'{path}: found answers of the split {split!r}, expected those of a test '
      'set: the zip is for the leaderboard'
    )


def write(
  task: Task,
  split: str,
  examples: Sequence[Example],
  predictions: Iterable[Prediction],
  path: epath.PathLike,
) -> None:
  """Writes predictions in the format that the path's ending names.

  .zip: of GLUE; the task's file is put in beside those of other tasks, one
    process at a time.
  .tsv: of GLUE, the task's file alone: index, prediction.
  .json: of SQuAD, question -> answer.
  .csv: of SWAG as its authors write it: row number, `pred`.
  .txt, .conll: words, their columns, right tag where it is told, predicted tag;
    what conlleval reads. White space in a word becomes `_`, and where there is
    more than one document each begins with a -DOCSTART- line.
  .jsonl: of any task: `id`, `answer` and what else is predicted of
    `probabilities`, `n_best`, `no_answer`.

  The file is the old one or whole.

  Args:
    task: says which formats.
    split: of the examples.
    examples: labelled or not; their order is the file's.
    predictions: one of each example, in any order.
    path: of the file.

  Raises:
    ValueError: if the ending fits no format of the task, ids do not match, or
      an answer is none of the task.
    OSError: if the file cannot be written.
  """
  check(task, path, split)
  path = epath.Path(path)
  pairs = list(
    zip(examples, matching.match(task, examples, predictions), strict=True)
  )
  if path.suffix == '.zip':
    data = _with_member(path, glue_file(task, split), _glue(task, pairs))
  else:
    formats: dict[str, Callable[[Task, Pairs], str]] = {
      '.tsv': _glue,
      '.json': _squad,
      '.csv': _swag,
      '.txt': _conll,
      '.conll': _conll,
      '.jsonl': _jsonl,
    }
    data = formats[path.suffix](task, pairs).encode()
  _write_atomically(path, data)


def write_squad(
  task: Task,
  examples: Sequence[SpanExample],
  predictions: Iterable[Prediction],
  path: epath.PathLike,
  *,
  n_best_path: epath.PathLike | None = None,
  null_odds_path: epath.PathLike | None = None,
) -> None:
  """Writes SQuAD's answers, and on request what they were chosen from.

  Args:
    task: see `write`, which has the errors too.
    examples: see `write`.
    predictions: see `write`.
    path: .json, question -> answer.
    n_best_path: question -> list of {text, probability}, the best first.
    null_odds_path: question -> score of no answer less that of the best answer,
      what the official script takes to find the best threshold.
  """
  found = matching.match(task, examples, predictions)
  bare = [x.id for x in found if x.no_answer is None]
  if null_odds_path is not None and bare:
    raise ValueError(
      f'{null_odds_path}: the prediction of {bare[0]!r} has no score of no '
      f'answer; expected one of each'
    )
  write(task, '', examples, found, path)
  if n_best_path is not None:
    n_best = {
      x.id: [{'text': text, 'probability': float(p)} for text, p in x.n_best]
      for x in found
    }
    _write_atomically(epath.Path(n_best_path), _json(n_best).encode())
  if null_odds_path is not None:
    odds = {x.id: float(x.no_answer) for x in found}
    _write_atomically(epath.Path(null_odds_path), _json(odds).encode())


def glue_file(task: Task, split: str) -> str:
  """Returns the name of a split's file in GLUE's zip."""
  if task.name == 'mnli' and 'mismatched' in split:
    return 'MNLI-mm.tsv'
  return _GLUE_FILES['diagnostic' if split == 'diagnostic' else task.name]


def _glue(task: Task, pairs: Pairs) -> str:
  """Classes as words or numbers, as the task has them; scores from 0 to 5.

  A score beyond that is cut, unlike in evaluation, which scores what the model
  says, as Hugging Face's run_glue does: Pearson may differ in the fourth digit.
  """

  def shown(answer: str | float) -> str:
    if task.kind == 'regression':
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
  """The numbers are of the file's rows: the official scorer reads no ids."""
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
  """What a line of JSON says of a prediction."""
  record = {'id': example.id, 'answer': found.answer}
  if task.kind == 'regression':
    record['answer'] = float(found.answer)
  elif isinstance(example, ChoiceExample):
    record['answer'] = int(found.answer)
  elif isinstance(example, TaggedExample):
    record |= {'answer': list(found.answer), 'words': list(example.words)}
  if found.probabilities:
    values = [float(p) for p in found.probabilities]
    if task.kind == 'classification':
      record['probabilities'] = dict(zip(task.labels, values, strict=True))
    elif task.kind == 'choice':
      record['probabilities'] = {str(i): p for i, p in enumerate(values)}
    elif task.kind == 'span':
      record['probabilities'] = {found.answer: values[0]}
    else:
      record['probabilities'] = values
  if found.n_best:
    record['n_best'] = [
      {'text': text, 'probability': float(p)} for text, p in found.n_best
    ]
  # JSON has no infinity: it is the score of a text without any span.
  if found.no_answer is not None and math.isfinite(found.no_answer):
    record['no_answer'] = float(found.no_answer)
  return record


def _json(value: Any) -> str:
  return json.dumps(value, ensure_ascii=False, indent=1) + '\n'


def _with_member(path: epath.Path, name: str, text: str) -> bytes:
  """Returns the zip file's bytes with one member put in or replaced."""
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
      # Without the time of day the same predictions give the same bytes.
      info = zipfile.ZipInfo(member)
      info.compress_type = zipfile.ZIP_DEFLATED
      info.external_attr = 0o644 << 16
      new.writestr(info, content)
  return data.getvalue()


def _write_atomically(path: epath.Path, data: bytes) -> None:
  """Writes a file that is either the old one or whole."""
  new = path.with_name(f'.{path.name}.{os.getpid()}.new')
  try:
    new.write_bytes(data)
    new.replace(path)
  except BaseException:
    new.unlink(missing_ok=True)
    raise
