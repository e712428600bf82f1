"""A user's own task, declared by settings without any code."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etils import epath

from data import storage
from data.by_name import ByName
from data.tasks import examples, files, glue, squad
from data.tasks.annotated import conll
from data.text import text_files
from data.vocabulary import tag_schemes

_SETS = ByName(
  {name: f'data.text.tables.data_sets:{name}' for name in ('find', 'parse')}
)

Settings = Mapping[str, Any]
Read = Callable[..., examples.Found]  # (split, by default 'train') -> examples


@dataclasses.dataclass(frozen=True)
class OwnForm:
  """How own files of one kind of task are read.

  Attributes:
    rows: (file, split, text=, label=) -> examples after their places, with the
      settings `text` and `label` of `task`.
    declare: (settings, found) -> fields of `task`, and perhaps `reading`, more
      keyword arguments of `rows`. The settings are `text`, `symmetric`,
      `labels`, `score_range`, `num_choices`, `metrics` and `train`, the
      training file; `found()` reads its examples, for settings that are empty.
    task: the class of the declaration.
    in_tables: a data set of Hugging Face may hold them.
  """

  rows: Callable[..., examples.Found]
  declare: Callable[[Settings, Read], dict[str, Any]]
  task: type[examples.Task] = examples.Task
  in_tables: bool = True


def task(
  form: OwnForm,
  *,
  kind: str,
  source: str = '',
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
  """Declares a task of the user's own files, which `find_file` finds.

  The name of a file tells its format: .jsonl (also .gz, .xz, .zst) has an
  object a line, .csv commas, .parquet, .arrow and .feather are binary tables,
  any other file has tabs; tables of commas and tabs begin with titles. A folder
  of Hugging Face's, or hf:NAME[:CONFIG]:SPLIT, is a table, too; classes that it
  names by numbers are labels, and so are the truth values true and false.

  - classification, regression: the fields `text` and `label`.
  - choice: the fields context, choices (JSONL: a list), label (number of the
    right one from 0), and perhaps question. A .csv or .tsv file has the choices
    in the columns choice0, choice1 and so on.
  - tagging: a word a line, its tag last, an empty line between sentences; or
    JSONL or a binary table with the lists words and tags, or those that `text`
    and `label` name. Tags of spans are read in IOB1, IOB2,
    BIOES, BIOUL (BILOU) or BMES, as B-TYPE, B_TYPE, TYPE-B or TYPE_B, and are
    IOB2 from there on: in labels, metrics and predictions.
  - roles: the columns of CoNLL-2012, CoNLL-2005 or the English Web Treebank,
    see `annotated.roles`; a test file may lack the columns of roles.
  - coreference: CoNLL-2012's columns; `labels` are genres, the first two
    letters of a document's name.
  - span: SQuAD's JSON; or JSONL or a binary table with question, context, and
    answers, a list of objects with text and answer_start, or these as lists.

  All may have a field `id`; without one, or with an empty one, the id is the
  record's number from 0. A test file need not have labels. The training file is
  read only to fill empty settings: `labels` become its labels, sorted, two or
  more; `score_range` its range and that of dev; `num_choices` the choices of
  its first example. Empty `metrics` are the usual ones of the kind. See also
  `examples.Task`.
  """
  paths = {
    split: find_file(form, source, file, f'own.{split}')
    for split, file in (('train', train), ('dev', dev), ('test', test))
    if file
  }
  for split in ('train', 'dev'):
    if split not in paths:
      raise ValueError(f'own.{split} is empty: expected a file')
  rows = functools.partial(form.rows, text=tuple(text), label=label)
  settings = {
    'text': tuple(text),
    'symmetric': symmetric,
    'labels': tuple(str(name) for name in labels),
    'score_range': score_range,
    'num_choices': num_choices,
    'metrics': tuple(metrics),
    'train': paths['train'],
  }
  fields = form.declare(
    settings, lambda split='train': rows(paths[split], split)
  )
  rows = functools.partial(rows, **fields.pop('reading', {}))
  if metrics:
    fields['metrics'] = tuple(metrics)
  return form.task(
    rows=rows,
    name=name,
    title=name,
    kind=kind,
    files={split: (str(path),) for split, path in paths.items()},
    **fields,
  )


def find_file(form: OwnForm, source: str, name: str, key: str) -> epath.Path:
  """Returns a file in the folder `source`, or of hf:NAME[:CONFIG] the split.

  Without a source the file need not exist. `key` names the setting in messages.
  """
  named = f'{source}:{name}' if files.is_named(source) else name
  if files.is_named(named):
    if not form.in_tables:
      raise ValueError(
        f'{key}: found {named}, expected a file in columns: a data set of'
        ' Hugging Face does not hold examples of this kind'
      )
    return files.path_of(named)
  folder = epath.Path(source).expanduser()
  if storage.is_remote(name):
    file = epath.Path(name)
  else:
    file = folder / epath.Path(name).expanduser()
  if source and not file.exists():
    raise FileNotFoundError(
      f'{key}={name}: not in {folder}. {files.contents(folder)}'
      + _hint(folder, name, key)
    )
  return file if storage.is_remote(str(file)) else file.resolve()


def find_input(form: OwnForm, source: str, key: str) -> tuple[epath.Path, str]:
  """Returns a file, or a data set's split, and what is read of a data set.

  A data set is hf:NAME[:CONFIG][:SPLIT], or the folder in which `save_to_disk`
  left a split. Raises ValueError for another folder.
  """
  file = find_file(form, '', source, key)
  is_saved = form.in_tables and (file / 'state.json').exists()
  if file.is_dir() and not is_saved:
    hint = f', or a split of a data set of Hugging Face, as hf:{source}:test'
    raise ValueError(
      f'{key} {source}: found a folder, expected a file{hint * form.in_tables}'
    )
  if not files.is_named(source):
    return file, ''
  found = _SETS['find'](source, *_SETS['parse'](source))
  return file, f'{source}: {found.description}'


def _hint(folder: epath.Path, name: str, key: str) -> str:
  """Returns how to read a folder of tables, if a name may be a split's."""
  has_tables = False
  if not text_files.is_table(epath.Path(name)) and folder.is_dir():
    with contextlib.suppress(OSError):  # of a folder that may not be read
      inside = (path for path in folder.iterdir() if path.is_dir())
      has_tables = any(
        text_files.is_table(path)
        for each in (folder, *inside)
        for path in each.iterdir()
      )
  return has_tables * (
    f'. As a data set of Hugging Face it is data.source=hf:{folder}, and {key}'
    ' the name of a split, such as train'
  )


def _declare_classes(settings: Settings, found: Read) -> dict[str, Any]:
  _check_text(settings['text'])
  labels = settings['labels'] or _distinct(
    settings['train'], (e.label for _, e in found() if e.label is not None)
  )
  return {
    'labels': labels,
    'label_hint': ' (own.labels names other labels)',
    **_texts_of(settings),
  }


def _declare_scores(settings: Settings, found: Read) -> dict[str, Any]:
  _check_text(settings['text'])
  score_range = settings['score_range']
  if score_range is None:
    scores = [e.label for _, e in found() if e.label is not None]
    scores += [e.label for _, e in found('dev') if e.label is not None]
    if not scores or min(scores) == max(scores):
      raise ValueError(
        f'{settings["train"]}: found the scores {scores[:1]} alone, expected'
        ' several; or their range in own.score_range'
      )
    score_range = min(scores), max(scores)
  return {
    'score_range': score_range,
    'label_hint': ' (own.score_range sets another range)',
    'metrics': ('spearman', 'pearson'),
    **_texts_of(settings),
  }


def _texts_of(settings: Settings) -> dict[str, Any]:
  """Returns the fields on the texts of a `TextTask`."""
  return {
    'num_texts': len(settings['text']),
    'symmetric': settings['symmetric'],
  }


def _declare_choices(settings: Settings, found: Read) -> dict[str, Any]:
  num_choices = settings['num_choices']
  if not num_choices:
    _, first = next(iter(found()), (None, None))
    num_choices = len(first.choices) if first else 0
  return {'num_choices': num_choices}


def _declare_tags(settings: Settings, found: Read) -> dict[str, Any]:
  labels = settings['labels']
  if not labels:
    labels = _distinct(
      settings['train'], (tag for _, e in found() for tag in e.tags or ())
    )
    _check_entities(labels, found())
  scheme = tag_schemes.scheme_of(labels)
  if scheme is not None:
    labels = _both_marks(labels, scheme)
  elif of_spans := sorted({*settings['metrics']} - {'accuracy'}):
    raise ValueError(
      f'own.metrics: found {of_spans} and the tags {list(labels[:6])}, expected'
      ' the metric accuracy, as these tags mark no spans'
    )
  return {
    'labels': labels,
    'label_hint': ' (own.labels names other tags)',
    'metrics': ('f1', 'precision', 'recall') if scheme else ('accuracy',),
    'submission': 'conll',
    'reading': {'convert': scheme.to_iob2 if scheme else tuple},
  }


def _both_marks(
  labels: Sequence[str], scheme: tag_schemes.Scheme
) -> tuple[str, ...]:
  """Returns labels in IOB2, B- and I- of each type in the place of its first.

  A type that a training file begins alone may go on in another file.
  """
  found: dict[str, None] = {}
  for label in labels:
    parts = scheme.split(label)
    new = (f'B-{parts[1]}', f'I-{parts[1]}') if parts else (label,)
    found |= dict.fromkeys(new)
  return tuple(found)


def _check_text(fields: Sequence[str]) -> None:
  if len(fields) not in (1, 2):
    raise ValueError(f'own.text={fields}: expected one field or two')


def _distinct(train: epath.Path, labels: Any) -> tuple[str, ...]:
  """Returns the different labels of a training file, sorted."""
  found = sorted(set(labels))
  if len(found) < 2:
    raise ValueError(
      f'{train}: found the labels {found}, expected two or more, or all of them'
      ' in own.labels'
    )
  return tuple(found)


def _check_entities(labels: Sequence[str], found: examples.Found) -> None:
  """Refuses a line of titles, not O or X-TYPE, among tags of entities."""
  if tag_schemes.scheme_of(labels):
    return
  proper = [tag for tag in labels if tag_schemes.scheme_of([tag])]
  if not proper:
    return
  for where, example in found:
    for tag in example.tags or ():
      if tag != 'O' and tag not in proper:
        raise ValueError(
          f'{where}: found the tag {tag!r}, expected O or the tag of an entity,'
          f' such as {proper[0]!r}. The file has no line of titles; own.labels'
          ' names other tags'
        )


def _text_rows(
  file: epath.Path,
  split: str,
  *,
  text: tuple[str, ...],
  label: str,
  to_label: Callable[[str, Any], Any],
) -> examples.Found:
  must = (label,) if examples.needs_labels(split) else ()
  records = files.read_records(file, must, text, (label, 'id'))
  return glue.text_examples(
    (_checked(*record, split, label, text) for record in records),
    text,
    label,
    ('id',),
    lambda where, value: to_label(f'{where}, field {label!r}', value),
  )


def _checked(
  where: str,
  record: dict[str, Any],
  split: str,
  label: str,
  text: Sequence[str] = (),
) -> tuple[str, dict[str, Any]]:
  """Returns a record; refuses an empty text or a missing label by its field."""
  for field in text:
    if not record[field].strip():
      raise ValueError(
        f'{where}, field {field!r}: found an empty text, expected words'
      )
  if examples.needs_labels(split) and record[label] is None:
    raise ValueError(
      f'{where}, field {label!r}: found no label, expected one: the split'
      f' {split!r} is for training or scoring'
    )
  return where, record


def _class_of(where: str, value: Any) -> str:
  """Returns the label of a class: text, or a whole number or truth as JSON."""
  if isinstance(value, bool):
    return str(value).lower()
  if not isinstance(value, str | int):
    raise ValueError(
      f'{where}: found the label {value!r}, expected text, a whole number, true'
      ' or false'
    )
  if not str(value).strip():
    raise ValueError(f'{where}: found an empty label, expected one')
  return str(value).strip()


def _choice_rows(
  file: epath.Path, split: str, *, text: tuple[str, ...], label: str
) -> examples.Found:
  del text
  is_table = not files.has_lists(file)
  must = ['choice0', 'choice1'] if is_table else ['choices']
  if examples.needs_labels(split):
    must.append(label)
  optional = ('question', label, 'id')
  records = files.read_records(file, must, ('context',), optional)
  for number, (where, record) in enumerate(records):
    _checked(where, record, split, label)
    if is_table:
      titles = (f'choice{i}' for i in itertools.count())
      titles = itertools.takewhile(record.__contains__, titles)
      record['choices'] = [record[title] for title in titles]
    question = record.get('question')
    if question is not None:
      question = files.text_of(where, record, 'question')
    value = record.get(label)
    if isinstance(value, bool) or not (value is None or str(value).isdecimal()):
      raise ValueError(
        f'{where}, field {label!r}: found {value!r} as the right choice,'
        ' expected its number from 0'
      )
    yield (
      where,
      examples.ChoiceExample(
        files.id_of(record, number),
        record['context'],
        question or '',
        choices=_texts(where, record, 'choices'),
        label=None if value is None else int(value),
      ),
    )


def _tag_rows(
  file: epath.Path,
  split: str,
  *,
  text: tuple[str, ...],
  label: str,
  convert: Callable[[Sequence[str]], tuple[str, ...]] = tuple,
) -> examples.Found:
  """Yields sentences of JSONL, or of columns with or without tabs.

  `convert` turns the tags of a sentence into those of its example.
  """
  if not files.has_lists(file):
    separator = '\t' if len(files.header_of(file)) > 1 else None
    yield from conll.rows(file, split, separator=separator, convert=convert)
    return
  optional = (text[0], 'words', label, 'tags', 'id')
  records = files.read_records(file, (), optional=optional)
  for number, (where, record) in enumerate(records):
    of_words = text[0] if text[0] in record else 'words'
    of_tags = label if label in record else 'tags'
    must = [of_words] + [of_tags] * examples.needs_labels(split)
    files.check_fields(where, record, must)
    _checked(where, record, split, of_tags)
    tags = None
    if record.get(of_tags) is not None:
      tags = convert(_texts(where, record, of_tags))
    words = _texts(where, record, of_words)
    key = files.id_of(record, number)
    yield where, examples.TaggedExample(key, words, tags, document=number)


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


CLASSES = OwnForm(
  functools.partial(_text_rows, to_label=_class_of),
  _declare_classes,
  examples.TextTask,
)
SCORES = OwnForm(
  functools.partial(_text_rows, to_label=glue.score_of),
  _declare_scores,
  examples.TextTask,
)
CHOICES = OwnForm(_choice_rows, _declare_choices, examples.ChoiceTask)
TAGS = OwnForm(_tag_rows, _declare_tags)
SPANS = OwnForm(
  lambda file, split, text, label: squad.any_rows(file, split),
  lambda settings, found: {'metrics': ('f1', 'em'), 'submission': 'squad'},
)
