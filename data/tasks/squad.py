"""SQuAD (Rajpurkar et al. 2016, 2018), and TriviaQA in its form."""

import functools
from collections.abc import Mapping
from typing import Any

from etils import epath

from data.tasks import examples, files
from data.text import text_files

_URL = 'https://rajpurkar.github.io/SQuAD-explorer'


def rows(
  file: epath.Path, split: str, *, any_case: bool = False
) -> examples.Found:
  """Yields (place, example) of a JSON file in SQuAD's form, of any version.

  A question has no answer if its list of answers is empty. With `any_case`
  answers may differ from the context in case, and questions without an answer
  are dropped: TriviaQA's documents need not hold the normalised answer.
  """
  del split
  data = files.read_json(file)
  files.check_fields(str(file), data, ('data',))
  dropped = 0
  for i, article in enumerate(files.list_of(str(file), data, 'data')):
    where = f'{file}, data {i}'
    files.check_fields(where, article, ('paragraphs',))
    for j, paragraph in enumerate(files.list_of(where, article, 'paragraphs')):
      of_paragraph = f'{where}, paragraph {j}'
      files.check_fields(of_paragraph, paragraph, ('context', 'qas'))
      for record in files.list_of(of_paragraph, paragraph, 'qas'):
        files.check_fields(of_paragraph, record, ('id', 'question'))
        if record['id'] is None:
          raise ValueError(
            f"{of_paragraph}: found null in the field 'id', expected the id of"
            ' the question'
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
  """Returns (text, start) of a question's answers, or None if unknown."""
  answers = record.get('answers')
  if answers is None:
    return None
  if not isinstance(answers, list):
    raise ValueError(
      f'{where}: found {type(answers).__name__} as answers, expected a list of '
      'objects with text and answer_start'
    )
  for answer in answers:
    files.check_fields(where, answer, ('answer_start',), ('text',))
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
  record: Mapping[str, Any], context: str, answers: list[tuple[str, int]] | None
) -> examples.SpanExample:
  return examples.SpanExample(
    id=str(record['id']),
    question=record['question'].strip(),
    context=context,
    answers=tuple(answers or ()),
    is_labelled=answers is not None,
  )


def any_rows(file: epath.Path, split: str) -> examples.Found:
  """Yields (place, example) of SQuAD's JSON, of JSONL or of a binary table.

  A record has question and context, perhaps id and answers as SQuAD's, or as
  the lists text and answer_start.
  """
  if text_files.ending(file) in ('.tsv', '.csv'):
    raise ValueError(
      f"{file}: a table holds no spans, expected SQuAD's JSON, or JSONL with"
      ' question, context and answers, a list of objects with text and'
      ' answer_start'
    )
  if not files.has_lists(file):
    yield from rows(file, split)
    return
  optional = ('answers', 'is_impossible', 'id')
  records = files.read_records(file, (), ('question', 'context'), optional)
  for number, (where, record) in enumerate(records):
    lists = record.get('answers')
    if isinstance(lists, dict) and {*lists} >= {'text', 'answer_start'}:
      record['answers'] = _from_lists(where, lists)
    answers = _answers(where, record)
    if answers is None and examples.needs_labels(split):
      raise ValueError(
        f"{where}, field 'answers': found none, expected those of the question"
        f' (an empty list if it has none): the split {split!r} is for training'
        ' or scoring'
      )
    record['id'] = files.id_of(record, number)
    yield where, _example(record, record['context'], answers)


def _from_lists(where: str, lists: Mapping[str, Any]) -> list[dict[str, Any]]:
  """Returns answers as objects, of the lists of their texts and places."""
  texts, starts = (
    files.list_of(f'{where}, answers', lists, field)
    for field in ('text', 'answer_start')
  )
  if len(texts) != len(starts):
    raise ValueError(
      f'{where}, answers: found {len(texts)} in the list text and'
      f' {len(starts)} in the list answer_start, expected as many in both'
    )
  return [
    {'text': text, 'answer_start': start}
    for text, start in zip(texts, starts, strict=True)
  ]


def _from_tfds(
  record: Mapping[str, Any], split: str, number: int
) -> examples.SpanExample:
  """Returns the example of a TFDS record."""
  del split, number
  answers = zip(
    record['answers']['text'], record['answers']['answer_start'], strict=True
  )
  return _example(record, record['context'], list(answers))


# Devlin et al. 2018, section 4.2.
_BERT = {'task.max_length': 384, 'optim.learning_rate': 5e-5}


def _squad(
  name: str,
  title: str,
  version: str,
  sizes: Mapping[str, int],
  changes: Mapping[str, Any],
) -> examples.Task:
  return examples.Task(
    rows=rows,
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
    tfds=examples.Tfds(
      f'squad/v{version}',
      _from_tfds,
      {'train': 'train', 'dev': 'validation'},
    ),
    url=_URL,
    recipe={'bert': _BERT | changes},
  )


SQUAD1 = _squad(
  'squad1', 'SQuAD 1.1', '1.1', {'train': 87599, 'dev': 10570}, {}
)
SQUAD2 = _squad(
  'squad2',
  'SQuAD 2.0',
  '2.0',
  {'train': 130319, 'dev': 11873},
  # Devlin et al. 2018, section 4.3.
  {'train.global_batch': 48, 'train.num_epochs': 2.0},
)
# BERT's TriviaQA augmentation: fine-tune on this set first, then on SQuAD from
# that run (init.weights=WORKDIR).
TRIVIAQA = examples.Task(
  rows=functools.partial(rows, any_case=True),
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
  recipe={'bert': _BERT | {'train.num_epochs': 1.0}},
)

TASKS = (SQUAD1, SQUAD2, TRIVIAQA)
