"""The figures of features."""

from data.tasks.examples import SpanExample, Task
from data.vocabulary import tokenization
from train.benches import host


def test_questions_are_counted_and_timed():
  text = 'a dog saw two cats, and two cats saw a dog'
  tokenizer = tokenization.train(
    [text], tokenization.parse_training('train:wordpiece:60')
  )
  examples = [
    SpanExample(str(n), 'who saw a dog?', text * (1 + n), (('a dog', 0),))
    for n in range(70)
  ]
  task = Task('squad', 'SQuAD', 'span', {}, None)
  found = host.squad_features(task, examples, tokenizer)
  assert found['questions'] == 70 < found['features'] < found['tokens']
  assert found['seconds'] > 0 and found['batch_ms'] > 0
