"""The figures of features and of vectors of words."""

import small_elmo

from data.tasks.examples import SpanExample, Task
from data.vocabulary import tokenization
from models.pretrained import elmo as pretrained
from train.benches import host
from train.vectors.vector_cache import VectorCache


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


def test_cached_vectors_are_computed_twice_and_read(tmp_path, monkeypatch):
  calls = []
  compute = VectorCache.compute
  monkeypatch.setattr(
    VectorCache,
    'compute',
    lambda *given: calls.append(1) or compute(*given),
  )
  model, params = small_elmo.small_elmo()
  pretrained.write_folder(tmp_path, model, params)
  sentences = [['a', 'dog'], ['two', 'cats', 'saw', 'a', 'dog']]
  found = host.word_cache(sentences, str(tmp_path))
  assert found['words'] == 7
  assert len(calls) == 2 and found['times_as_fast'] > 0
