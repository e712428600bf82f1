"""A user's own task, from plain settings: no code is needed for it."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from data.tasks import checks, conll, examples, files, glue, squad
from data.text import text_files

_METRICS = {
  'classification': ('accuracy',),
  'regression': ('spearman', 'pearson'),
  'choice': ('accuracy',),
  'span': ('f1', 'em'),
}


def task(
  *,
  kind: str,
  train: str,
  dev: str,
  test: str = '',
  name: str = 'own',
  text: Sequence[str] = ('sentence',),
  label: str = 'label',
  labels: Sequence[str] = (),
  score_range: tuple[float, float] | None = None,
  num_choices: int = 0,
  symmetric: bool = False,
  metrics: Sequence[str] = (),
) -> examples.Task:
  """Declares a task of one's own files.

  What the files are is told by their names: .jsonl (also .gz, .xz, .zst) has
  an object a line, .csv commas, all others tabs, and titles in the first line.

  - classification, regression: the fields `text` and `label`.
  - choice: the fields context, choices (JSONL: a list), label (number of the
    right one from 0), and perhaps question. A .csv or .tsv file has the
    choices in the columns choice0, choice1 and so on.
  - tagging: a word a line, its tag last, an empty line between sentences; or
    JSONL with the lists words and tags.
  - span: SQuAD's JSON; or JSONL with question, context, and answers, a list
    of objects with text and answer_start.

  All may have a field `id`; a test file need not have labels. The training
  file is read only for what is not told here.

  Args:
    kind: one of `examples.KINDS`.
    train: file to learn from.
    dev: file to choose by.
    test: file to score or predict at the end; may be empty.
    name: for results.
    text: fields of the one or two texts.
    label: field of the label or score.
    labels: in the order of their numbers; empty: those of the training file,
      sorted, two or more.
    score_range: lowest and highest score; None: those of the training file.
    num_choices: of every example; 0: of the training file's first.
    symmetric: neither text comes first.
    metrics: see `examples.Task`; empty: the usual ones of the kind.

  Raises:
    FileNotFoundError: if the training file is to be read and not there.
    ValueError: if a setting is wrong, or the training file where something is
      read from it.
  """
  if kind not in examples.KINDS:
    raise ValueError(
      f'own.kind={kind!r}: expected one of {", ".join(examples.KINDS)}'
    )
  paths = {
    split: _absolute(file)
    for split, file in (('train', train), ('dev', dev), ('test', test))
    if file
  }
  for split in ('train', 'dev'):
    if split not in paths:
      raise ValueError(f'own.{split} is empty: expected a file')
  if kind in ('classification', 'regression') and len(text) not in (1, 2):
    raise ValueError(f'own.text={tuple(text)}: expected one field or two')
  rows = {
    'classification': functools.partial(
      _text_rows, text=tuple(text), label=label, is_score=False
    ),
    'regression': functools.partial(
      _text_rows, text=tuple(text), label=label, is_score=True
    ),
    'choice': functools.partial(_choice_rows, label=label),
    'tagging': _tag_rows,
    'span': squad.any_rows,
  }[kind]
  labels = tuple(str(name) for name in labels)
  if kind in ('classification', 'tagging') and not labels:
    labels = _labels_of(rows(paths['train'], 'train'))
    if len(labels) < 2:
      raise ValueError(
        f'{paths["train"]}: found the labels {list(labels)}, expected two or'
        ' more, or all of them in own.labels'
      )
    if kind == 'tagging':
      _check_entities(labels, rows(paths['train'], 'train'))
  if kind == 'regression' and score_range is None:
    score_range = _range_of(rows(paths['train'], 'train'))
  if kind == 'choice' and not num_choices:
    found = next(iter(rows(paths['train'], 'train')), None)
    num_choices = len(found[1].choices) if found else 0
  if not metrics and kind == 'tagging':
    is_iob = conll.is_of_entities(labels)
    metrics = ('f1', 'precision', 'recall') if is_iob else ('accuracy',)
  _check_metrics(kind, metrics, labels)
  return checks.declare(
    rows,
    name=name,
    title=name,
    kind=kind,
    files={split: (str(path),) for split, path in paths.items()},
    labels=labels,
    num_texts=len(text),
    symmetric=symmetric,
    num_choices=num_choices,
    score_range=score_range or (0.0, 1.0),
    metrics=tuple(metrics) or _METRICS[kind],
    submission='conll' if kind == 'tagging' else '',
    hint={'regression': 'own.score_range tells another'}.get(
      kind, 'own.labels names others'
    ),
  )


def _check_entities(labels: Sequence[str], found: checks.Found) -> None:
  """Refuses words of titles, or such, among tags of entities.

  Raises:
    ValueError: at the first that is neither O nor of the form X-TYPE.
  """
  odd = [tag for tag in labels if tag != 'O' and tag[1:2] != '-']
  if len(odd) == len([tag for tag in labels if tag != 'O']):
    return
  for where, example in found:
    for tag in example.tags or ():
      if tag in odd:
        raise ValueError(
          f'{where}: found the tag {tag!r}, expected one of an entity, such as'
          f' {next(tag for tag in labels if tag[1:2] == "-")!r}, or O. There is'
          ' no line of titles; own.labels names other tags'
        )


def _check_metrics(
  kind: str, metrics: Sequence[str], labels: Sequence[str]
) -> None:
  known = examples.METRICS[kind]
  if kind == 'classification' and len(labels) != 2:
    known = tuple(name for name in known if name != 'f1')
  for name in metrics:
    if name not in known:
      raise ValueError(
        f'own.metrics: found {name!r}, expected some of {", ".join(known)}'
      )


def _absolute(file: str) -> epath.Path:
  """A path that is found from any folder."""
  path = epath.Path(file).expanduser()
  return path if '://' in file else path.resolve()


def _labels_of(found: checks.Found) -> tuple[str, ...]:
  """The labels, or tags, of examples, sorted."""
  labels: set[str] = set()
  for _, example in found:
    if isinstance(example, examples.TaggedExample):
      labels.update(example.tags or ())
    elif example.label is not None:
      labels.add(example.label)
  return tuple(sorted(labels))


def _range_of(found: checks.Found) -> tuple[float, float]:
  scores = [example.label for _, example in found if example.label is not None]
  if not scores or min(scores) == max(scores):
    raise ValueError(
      f'found the scores {scores[:1]} alone in the training file, expected '
      'several; or their range in own.score_range'
    )
  return min(scores), max(scores)


def _records(
  file: epath.Path, fields: Sequence[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
  """Yields (place, record) of JSONL or a table with titles.

  Args:
    file: by its name .jsonl, .csv or tab-separated.
    fields: that it must have; a table's other ones are there as well.
  """
  if text_files.is_jsonl(file):
    for line, record in files.read_jsonl(file, fields):
      yield f'{file}, line {line:,}', record
    return
  is_csv = text_files.ending(file) == '.csv'
  titles = (files.csv_header_of if is_csv else files.header_of)(file)
  columns = tuple(dict.fromkeys((*fields, *titles)))
  if is_csv:
    table = files.read_csv(file, columns)
  else:
    table = files.read_tsv(file, columns, refuse_quotes=True)
  for line, values in table:
    yield f'{file}, line {line:,}', dict(zip(columns, values, strict=True))


def _text_rows(
  file: epath.Path,
  split: str,
  *,
  text: tuple[str, ...],
  label: str,
  is_score: bool,
) -> Iterator[tuple[str, examples.TextExample]]:
  must = (*text, *([label] if checks.is_labelled(split) else []))
  for number, (where, record) in enumerate(_records(file, must)):
    yield (
      where,
      examples.TextExample(
        id=str(record.get('id', number)),
        texts=tuple(files.text_of(where, record, field) for field in text),
        label=_label(where, record.get(label), is_score),
      ),
    )


def _label(where: str, value: Any, is_score: bool) -> str | float | None:
  """A class is text or a whole number, which stands for its digits."""
  if value is None:
    return None
  if is_score:
    return glue.score_of(where, value)
  if isinstance(value, bool) or not isinstance(value, str | int):
    raise ValueError(
      f'{where}: found the label {value!r}, expected text or a whole number'
    )
  if not str(value).strip():
    raise ValueError(f'{where}: found an empty label, expected one')
  return str(value).strip()


def _choice_rows(
  file: epath.Path, split: str, *, label: str
) -> Iterator[tuple[str, examples.ChoiceExample]]:
  is_table = not text_files.is_jsonl(file)
  must = [
    'context',
    *(('choice0', 'choice1') if is_table else ('choices',)),
    *([label] if checks.is_labelled(split) else []),
  ]
  for number, (where, record) in enumerate(_records(file, must)):
    choices = _columns_of_choices(record) if is_table else record['choices']
    if not isinstance(choices, list) or not all(
      isinstance(choice, str) for choice in choices
    ):
      raise ValueError(
        f'{where}: found the choices {choices!r}, expected a list of texts'
      )
    question = record.get('question')
    if question is not None:
      question = files.text_of(where, record, 'question')
    yield (
      where,
      examples.ChoiceExample(
        id=str(record.get('id', number)),
        context=files.text_of(where, record, 'context'),
        question=question or '',
        choices=tuple(choices),
        label=_number_of(where, record.get(label)),
      ),
    )


def _columns_of_choices(record: Mapping[str, Any]) -> list[str]:
  titles = itertools.takewhile(
    record.__contains__, (f'choice{i}' for i in itertools.count())
  )
  return [record[title] for title in titles]


def _number_of(where: str, value: Any) -> int | None:
  if value is None:
    return None
  if isinstance(value, bool) or not str(value).isdecimal():
    raise ValueError(
      f'{where}: found {value!r} as the right choice, expected its number from '
      '0'
    )
  return int(value)


def _tag_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.TaggedExample]]:
  """Columns between tabs, or white space if the first line has no tab."""
  if not text_files.is_jsonl(file):
    separator = '\t' if len(files.header_of(file)) > 1 else None
    yield from conll.rows(file, split, separator=separator)
    return
  must = ('words', *(('tags',) if checks.is_labelled(split) else ()))
  for number, (line, record) in enumerate(files.read_jsonl(file, must)):
    where = f'{file}, line {line:,}'
    yield (
      where,
      examples.TaggedExample(
        id=str(record.get('id', number)),
        words=_texts(where, record, 'words'),
        tags=_tags_of(where, record) if 'tags' in record else None,
        document=number,
      ),
    )


def _tags_of(where: str, record: Mapping[str, Any]) -> tuple[str, ...]:
  tags = _texts(where, record, 'tags')
  return conll.to_iob2(tags) if conll.is_of_entities(tags) else tags


def _texts(
  where: str, record: Mapping[str, Any], field: str
) -> tuple[str, ...]:
  texts = record[field]
  if not isinstance(texts, list) or not all(
    isinstance(text, str) for text in texts
  ):
    raise ValueError(
      f'{where}: found {texts!r} in the field {field!r}, expected a list of '
      'texts'
    )
  return tuple(texts)
