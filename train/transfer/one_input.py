"""Answers one input of the command line by a fine-tuned model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from etils import epath
from scipy import special

from data.scoring import kinds, spans
from data.tasks.examples import (
  ChoiceExample,
  DocumentExample,
  Example,
  Prediction,
  RoleExample,
  SpanExample,
  TaggedExample,
  Task,
  TextExample,
)
from train.host.files import Json
from train.transfer import predictors, task_outputs
from train.transfer.predictors import Answered

ID = 'the command line'
# Characters of a context that are shown around an answer.
AROUND = 200


class Given(NamedTuple):
  """The options of one input, empty where they were not given.

  Attributes:
    texts: of classes and scores; of choices one, the context.
    question: of spans, and of choices, where it may be empty.
    context: the text of the file that may hold the answer.
    choices: endings or answers, two or more.
    sentences: the words of each; tags and roles have one.
    predicate: a word of the sentence, or its number from 1.
  """

  texts: Sequence[str] = ()
  question: str = ''
  context: str = ''
  choices: Sequence[str] = ()
  sentences: Sequence[Sequence[str]] = ()
  predicate: str = ''

  def names(self) -> set[str]:
    """Returns the names of the options that were given."""
    return {
      OPTIONS[name] for name, value in self._asdict().items() if len(value)
    }


OPTIONS = {
  'texts': '--text',
  'question': '--question',
  'context': '--context',
  'choices': '--choice',
  'sentences': '--words',
  'predicate': '--predicate',
}


def _text(task: Task, given: Given) -> Example:
  return TextExample(ID, tuple(given.texts), None)


def _choice(task: Task, given: Given) -> Example:
  if len(given.texts) > 1:
    raise ValueError(f'found {len(given.texts)} of --text, expected one')
  return ChoiceExample(
    ID, given.texts[0], given.question, tuple(given.choices), None
  )


def _span(task: Task, given: Given) -> Example:
  return SpanExample(
    ID, given.question.strip(), given.context, (), is_labelled=False
  )


def _tagged(task: Task, given: Given) -> Example:
  return TaggedExample(ID, _sentence(given), None)


def _role(task: Task, given: Given) -> Example:
  words, asked = _sentence(given), given.predicate
  places = [place for place, word in enumerate(words) if word == asked]
  if asked.isdecimal() and not places:
    places = [int(asked) - 1]
  if len(places) != 1 or not 0 <= places[0] < len(words):
    raise ValueError(
      f'--predicate {asked}: found {len(places)} such words, expected one word'
      f' of the sentence, or its number, 1 to {len(words)}'
    )
  return RoleExample(ID, words, None, predicate=places[0])


def _document(task: Task, given: Given) -> Example:
  sentences = tuple(map(tuple, given.sentences))
  speakers = tuple(('',) * len(words) for words in sentences)
  return DocumentExample(ID, sentences, speakers, '', None)


def _sentence(given: Given) -> tuple[str, ...]:
  if len(given.sentences) > 1:
    raise ValueError(
      f'found {len(given.sentences)} of --words, expected one sentence'
    )
  return tuple(given.sentences[0])


def read(task: Task, given: Given) -> list[Example]:
  """Returns the example of the options.

  Raises ValueError if they are not those of the task's kind, or the example is
  none of the task.
  """
  form, names = FORMS[task.kind], given.names()
  if not set(form.needed) <= names <= {*form.needed, *form.optional}:
    expected = ' and '.join(form.needed)
    if form.optional:
      expected += f', perhaps {" and ".join(form.optional)}'
    raise ValueError(
      f'the task {task.name} is of the kind {task.kind}: expected {expected},'
      f' found {" and ".join(sorted(names))}'
    )
  return task.gather([(ID, form.example(task, given))], 'test', ID)


def answer(
  workdirs: Sequence[epath.PathLike],
  given: Given,
  *,
  task_name: str | None = None,
  top: int | None = None,
) -> dict[str, Json]:
  """Returns the answer of a model, or of an ensemble, for JSON.

  `likeliest` are the `top` answers with their probabilities, all by default; of
  tags those of each word. A text longer than the model reads is cut as in
  files. Raises ValueError for options that do not fit the task.
  """
  found = predictors.answer(workdirs, lambda task: read(task, given), task_name)
  (example,), (prediction,) = found.split.examples, found.predictions
  record = kinds.KINDS[found.task.kind].record(prediction.answer)
  shown: dict[str, Any] = {'task': found.task.name, 'kind': found.task.kind}
  shown |= {
    name: value for name, value in given._asdict().items() if len(value)
  }
  shown['answer'] = record
  likeliest = FORMS[found.task.kind].likeliest
  return shown | likeliest(found, example, prediction, top)


def _of_classes(
  found: Answered, example: Any, prediction: Prediction, top: int | None
) -> dict[str, Json]:
  names = found.task.labels or example.choices
  return {'likeliest': _ranked(names, prediction.probabilities, top)}


def _ranked(
  names: Sequence[str], chances: Sequence[float], top: int | None
) -> list[dict[str, Json]]:
  order = np.argsort(-np.asarray(chances), kind='stable')[:top]
  return [{'answer': names[i], 'probability': float(chances[i])} for i in order]


def _of_tags(
  found: Answered, example: Any, prediction: Prediction, top: int | None
) -> dict[str, Json]:
  features = found.split.features
  names = features.tag_labels or found.task.labels
  likeliest: list[Json] = [None] * len(example.words)
  for number, rows in enumerate(found.logits):
    start = features.offsets[number]
    words = features.word_index[start : start + len(rows)]
    chances = special.softmax(rows.astype(np.float64), axis=-1)
    for place in np.flatnonzero(words >= 0):
      likeliest[words[place]] = _ranked(names, chances[place], top)
  return {'likeliest': likeliest}


def _of_spans(
  found: Answered, example: Any, prediction: Prediction, top: int | None
) -> dict[str, Json]:
  """Returns the best answers, each with its place in the context."""
  options = task_outputs.span_options(found.settings)
  features = found.split.features
  parts = [
    spans.candidates(features, i, logits, options)
    for i, logits in enumerate(found.logits)
  ]
  scores, bounds = map(np.concatenate, zip(*parts, strict=True))
  places: dict[str, int] = {}
  for i in np.argsort(-scores, kind='stable'):
    begin, end = bounds[i].tolist()
    places.setdefault(example.context[begin:end], begin)
  likeliest = [
    {'answer': text, 'probability': chance, 'begin': places.get(text)}
    for text, chance in prediction.n_best[:top]
  ]
  return {'begin': places.get(prediction.answer), 'likeliest': likeliest}


def as_text(shown: Mapping[str, Any]) -> Iterator[str]:
  """Yields the lines of an answer, for people."""
  return FORMS[shown['kind']].lines(shown)


def _texts(shown: Mapping[str, Any]) -> Iterator[str]:
  yield from shown.get('texts', ())
  if 'question' in shown:
    yield shown['question']
  if 'likeliest' not in shown:
    yield f'  {shown["answer"]:.4f}'
  for each in shown.get('likeliest', ()):
    yield f'  {each["probability"]:.4f}  {each["answer"] or "(no answer)"}'
  if shown.get('begin') is not None:
    yield _marked(shown['context'], shown['begin'], len(shown['answer']))


def _marked(context: str, begin: int, size: int) -> str:
  """Returns the text around an answer, which stands between two brackets."""
  end = begin + size
  first, last = max(0, begin - AROUND), min(len(context), end + AROUND)
  before = '...' * (first > 0) + context[first:begin]
  after = context[end:last] + '...' * (last < len(context))
  return f'{before}[[{context[begin:end]}]]{after}'


def _words(shown: Mapping[str, Any]) -> Iterator[str]:
  (words,) = shown['sentences']
  rows = [
    [word, tag, *(f'{x["answer"]} {x["probability"]:.4f}' for x in likeliest)]
    for word, tag, likeliest in zip(
      words, shown['answer'], shown['likeliest'], strict=True
    )
  ]
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  for row in rows:
    cells = (f'{x:{width}}' for x, width in zip(row, widths, strict=True))
    yield '  ' + '  '.join(cells).rstrip()


def _clusters(shown: Mapping[str, Any]) -> Iterator[str]:
  words = [word for sentence in shown['sentences'] for word in sentence]
  yield ' '.join(words)
  for number, cluster in enumerate(shown['answer'], start=1):
    mentions = (
      f'{" ".join(words[first : last + 1])} ({first + 1})'
      for first, last in cluster
    )
    yield f'  {number}  {", ".join(mentions)}'
  if not shown['answer']:
    yield '  no two mentions of one entity'


def _nothing(*_: Any) -> dict[str, Json]:
  """Returns nothing: the answer is all that there is."""
  return {}


class Form(NamedTuple):
  """How a kind of task is asked, and how its answer is shown.

  Attributes:
    needed: options that must be given.
    example: (task, options) -> the example.
    optional: options that may be given, too.
    likeliest: (answered, example, prediction, how many) -> the likeliest
      answers, for JSON.
    lines: what `answer` returns -> lines for people.
  """

  needed: tuple[str, ...]
  example: Callable[[Task, Given], Example]
  optional: tuple[str, ...] = ()
  likeliest: Callable[..., dict[str, Json]] = _nothing
  lines: Callable[[Mapping[str, Any]], Iterator[str]] = _texts


_TAGS = {'likeliest': _of_tags, 'lines': _words}
# Kinds of `data.scoring.kinds.KINDS`.
FORMS: Mapping[str, Form] = {
  'classification': Form(('--text',), _text, likeliest=_of_classes),
  'regression': Form(('--text',), _text),
  'choice': Form(('--text', '--choice'), _choice, ('--question',), _of_classes),
  'tagging': Form(('--words',), _tagged, **_TAGS),
  'roles': Form(('--words', '--predicate'), _role, **_TAGS),
  'coreference': Form(('--words',), _document, lines=_clusters),
  'span': Form(('--question', '--context'), _span, likeliest=_of_spans),
}
