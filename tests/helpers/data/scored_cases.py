"""Tasks, examples and predictions to score and to write."""

import json
import zlib

import numpy as np

from data.tasks import examples as tasks_lib


def task(kind, metrics=('accuracy',), **fields):
  """A task without files."""
  fields = {'name': 'mine', 'title': 'Mine', 'rows': None, 'files': {}} | fields
  classes = {
    'classification': tasks_lib.TextTask,
    'regression': tasks_lib.TextTask,
    'choice': tasks_lib.ChoiceTask,
  }
  make = classes.get(kind, tasks_lib.Task)
  return make(kind=kind, metrics=metrics, **fields)


def predictions(answers):
  """Predictions of examples '0', '1', ..."""
  return [
    tasks_lib.Prediction(str(i), answer) for i, answer in enumerate(answers)
  ]


def texts(labels, groups=None):
  """Examples '0', '1', ... of one text each."""
  groups = groups or [''] * len(labels)
  return [
    tasks_lib.TextExample(str(i), ('text',), label, group)
    for i, (label, group) in enumerate(zip(labels, groups, strict=True))
  ]


def sentences(tags, **fields):
  """Examples '0', '1', ... of words with tags."""
  return [
    tasks_lib.TaggedExample(
      str(i), tuple(f'w{j}' for j in range(len(row))), tuple(row), **fields
    )
    for i, row in enumerate(tags)
  ]


def questions(answers):
  """Examples '0', '1', ... of questions with right answers."""
  return [
    tasks_lib.SpanExample(str(i), 'what?', 'context', tuple((a, 0) for a in of))
    for i, of in enumerate(answers)
  ]


def random_classes(num_classes, size, seed):
  """Labels and answers, right more often than not."""
  rng = np.random.default_rng(seed)
  labels = tuple(f'class {k}' for k in range(num_classes))
  gold = rng.integers(num_classes, size=size)
  found = np.where(
    rng.random(size) < 0.6, gold, rng.integers(num_classes, size=size)
  )
  return labels, [labels[k] for k in gold], [labels[k] for k in found]


def random_tags(num_sentences, seed, prefixes='OBI'):
  """Tags without regard to what may follow what, half of them right."""
  rng = np.random.default_rng(seed)
  tags = ['O', 'O']
  tags += [f'{p}-{t}' for p in prefixes if p != 'O' for t in ('PER', 'LOC')]
  gold, found = [], []
  for _ in range(num_sentences):
    length = rng.integers(1, 12)
    row = rng.choice(tags, length)
    other = rng.choice(tags, length)
    gold.append(row.tolist())
    found.append(np.where(rng.random(length) < 0.7, row, other).tolist())
  return gold, found


def read_squad(file):
  """All questions of a file in SQuAD's format."""
  return [
    tasks_lib.SpanExample(
      question['id'],
      question['question'],
      paragraph['context'],
      tuple((a['text'], a['answer_start']) for a in question['answers']),
    )
    for article in json.loads(file.read_text())['data']
    for paragraph in article['paragraphs']
    for question in paragraph['qas']
  ]


def disturbed(example):
  """An answer that is right, nearly right or wrong, by the question's id."""
  first = ' '.join(example.context.split()[:5])
  case = zlib.crc32(example.id.encode()) % 8
  if not example.answers:
    return ('', '', '', '', '', first, 'the', '--')[case]
  gold, last = example.answers[0][0], example.answers[-1][0]
  return (
    gold,
    f'The {gold.upper()}!',
    f'\N{LEFT DOUBLE QUOTATION MARK}{gold}\N{RIGHT DOUBLE QUOTATION MARK}',
    ' '.join(gold.split()[1:]),
    '',
    f'{last} and an addition',
    first,
    gold.replace(' ', ' \N{NO-BREAK SPACE} ').replace('-', ''),
  )[case]
