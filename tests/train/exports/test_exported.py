"""What is asked of an export, beside what a model is."""

import pytest

from models.pretrained.weights import SentenceForm
from train.exports import exported
from train.params import opened


def plan(source, **asked):
  request = exported.ExportRequest(**asked)
  return exported.plan(opened.open_weights(source), request)


def test_vectors_are_those_of_the_training_unless_asked(published):
  bert = published['bert']
  assert plan(bert).vectors is None
  assert plan(bert, form='onnx').vectors is None
  assert plan(bert, form='sentence-transformers').vectors == SentenceForm(
    'mean'
  )
  trained = opened.open_weights(bert)._replace(
    sentence_form=SentenceForm('cls', True, 'query: ', max_length=9)
  )
  for form in exported.FORMS[1:]:
    request = exported.ExportRequest(form)
    assert exported.plan(trained, request).vectors == trained.sentence_form
    found = exported.plan(
      trained, request._replace(pool='mean', normalize=False)
    )
    assert found.vectors == SentenceForm('mean', False, 'query: ', max_length=9)


@pytest.mark.parametrize(
  ('name', 'asked', 'message'),
  [
    (
      'gpt2',
      {'form': 'onnx', 'pool': 'cls'},
      'expected mean or last of a gpt2',
    ),
    (
      'bert',
      {'form': 'onnx', 'pool': 'last'},
      'expected mean or cls of a bert',
    ),
    ('bert', {'normalize': True}, '--pool and --normalize are of --form'),
    (
      'elmo',
      {'form': 'onnx'},
      'a model of the kind elmo, expected bert or gpt',
    ),
  ],
)
def test_what_does_not_fit_is_refused(published, name, asked, message):
  with pytest.raises(ValueError, match=message):
    plan(published[name], **asked)


def test_a_left_to_right_bert_is_refused(published):
  found = opened.open_weights(published['bert'])
  model = found.model.clone(left_to_right=True)
  for form in exported.FORMS:
    with pytest.raises(ValueError, match='reads from left to right'):
      exported.plan(found._replace(model=model), exported.ExportRequest(form))
