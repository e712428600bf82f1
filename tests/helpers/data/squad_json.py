"""Questions of SQuAD's files, read without checks."""

import json

from data.tasks.examples import SpanExample


def read(file):
  """All questions of a file."""
  return [
    SpanExample(
      str(question['id']),
      question['question'].strip(),
      paragraph['context'],
      tuple((a['text'], a['answer_start']) for a in question['answers']),
    )
    for article in json.loads(file.read_text('utf-8'))['data']
    for paragraph in article['paragraphs']
    for question in paragraph['qas']
  ]
