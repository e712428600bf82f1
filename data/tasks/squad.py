"""SQuAD (Rajpurkar et al. 2016, 2018), and TriviaQA in its form."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from data.tasks import checks, examples, files
from data.text import text_files

_URL = 'https://rajpurkar.github.io/SQuAD-explorer'


def rows(
  file: epath.Path, split: str, *, any_case: bool = False
) -> Iterator[tuple[str, examples.SpanExample]]:
  """Yields (place, example) of a file in SQuAD's form, of any version.

  Whether a question has no answer is told by its empty list of answers, not
  by the file's version.

  Args:
    file: JSON.
    split: unused, as all readers have it.
    any_case: answers may differ from the context in case, and questions
      without one are dropped and counted: TriviaQA's converter looks up
      normalised answers in documents that need not hold any.
  """
  del split
  data = files.read_json(file)
  files.check_fields(str(file), data, ('data',))
  dropped = 0
  for i, article in enumerate(data['data']):
    where = f'{file}, data {i}'
    files.check_fields(where, article, ('paragraphs',))
    for j, paragraph in enumerate(article['paragraphs']):
      files.check_fields(
        f'{where}, paragraph {j}', paragraph, ('context', 'qas')
      )
      for record in paragraph['qas']:
        files.check_fields(
          f'{where}, paragraph {j}', record, ('id', 'question')
        )
        place = f'{file}, question {record["id"]!r}'
        files.text_of(place, record, 'question')
        context = files.text_of(place, paragraph, 'context')
        answers = _answers(place, record)
        if any_case and answers is not None:
          answers = [_as_written(context, *answer) for answer in answers]
          if not answers:
            dropped += 1
            continue
        yield place, _example(record, context, answers)
  if dropped:
    files.note(f'{file}: {dropped:,} questions without an answer dropped')


def _answers(
  where: str, record: Mapping[str, Any]
) -> list[tuple[str, int]] | None:
  """Returns (text, start) of a question's answers, or None if not told."""
  if 'answers' not in record:
    return None
  answers = record['answers']
  if not isinstance(answers, list):
    raise ValueError(
      f'{where}: found {type(answers).__name__} as answers, expected a list of '
      'objects with text and answer_start'
    )
  for answer in answers:
    files.check_fields(where, answer, ('text', 'answer_start'))
    files.text_of(where, answer, 'text')
    if type(answer['answer_start']) is not int:
      raise ValueError(
        f'{where}: found answer_start {answer["answer_start"]!r}, expected the '
        'number of the first character'
      )
  if answers and record.get('is_impossible'):
    raise ValueError(
      f'{where}: found {len(answers)} answers of an impossible question, '
      'expected none'
    )
  return [(answer['text'], answer['answer_start']) for answer in answers]


def _as_written(context: str, text: str, start: int) -> tuple[str, int]:
  there = context[start : start + len(text)]
  return (there, start) if there.lower() == text.lower() else (text, start)


def _example(
  record: Mapping[str, Any],
  context: str,
  answers: list[tuple[str, int]] | None,
) -> examples.SpanExample:
  return examples.SpanExample(
    id=str(record['id']),
    question=record['question'].strip(),
    context=context,
    answers=tuple(answers or ()),
    is_labelled=answers is not None,
  )


def jsonl_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.SpanExample]]:
  """Yields (place, example) of JSONL: question, context, perhaps answers.

  Answers are objects with text and answer_start, as SQuAD's; ids are `id`, or
  the numbers of the records.
  """
  del split
  records = files.read_jsonl(file, ('question', 'context'))
  for number, (line, record) in enumerate(records):
    where = f'{file}, line {line:,}'
    files.text_of(where, record, 'question')
    context = files.text_of(where, record, 'context')
    answers = _answers(where, record)
    yield where, _example({'id': number, **record}, context, answers)


def any_rows(
  file: epath.Path, split: str
) -> Iterator[tuple[str, examples.SpanExample]]:
  """Yields (place, example) of a file in SQuAD's form or JSONL by its name."""
  return (jsonl_rows if text_files.is_jsonl(file) else rows)(file, split)


def _from_tfds(
  record: Mapping[str, Any], split: str, number: int
) -> examples.SpanExample:
  """Returns the example of a TFDS record."""
  del split, number
  answers = zip(
    record['answers']['text'], record['answers']['answer_start'], strict=True
  )
  return _example(record, record['context'], list(answers))


def _squad(name: str, title: str, version: str, sizes) -> examples.Task:
  return checks.declare(
    rows,
    name=name,
    title=title,
    kind='span',
    files={
      split: (f'{split}-v{version}.json',) for split in ('train', 'dev', 'test')
    },
    folders=('squad', 'SQuAD', f'squad{version[0]}'),
    metrics=('f1', 'em'),
    submission='squad',
    sizes=sizes,
    tfds=f'squad/v{version}',
    from_tfds=_from_tfds,
    tfds_splits={'train': 'train', 'dev': 'validation'},
    url=_URL,
  )


SQUAD1 = _squad('squad1', 'SQuAD 1.1', '1.1', {'train': 87599, 'dev': 10570})
SQUAD2 = _squad('squad2', 'SQuAD 2.0', '2.0', {'train': 130319, 'dev': 11873})
# BERT's TriviaQA augmentation: fine-tune on this one first, and go on with
# SQuAD from that run (init.weights=WORKDIR).
TRIVIAQA = checks.declare(
  functools.partial(rows, any_case=True),
  name='triviaqa',
  title="TriviaQA in SQuAD's form",
  kind='span',
  files={
    split: tuple(
      f'{prefix}{split}{suffix}.json'
      for prefix in ('squad-wikipedia-', 'squad-web-', 'wikipedia-', 'web-', '')
      for suffix in ('', '-v1.1')
    )
    for split in ('train', 'dev')
  },
  folders=('triviaqa', 'TriviaQA', 'triviaqa_squad'),
  metrics=('f1', 'em'),
  submission='squad',
  url='https://nlp.cs.washington.edu/triviaqa',
)

TASKS = (SQUAD1, SQUAD2, TRIVIAQA)
