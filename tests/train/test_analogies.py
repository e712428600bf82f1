"""The command: several kinds of vectors in one table, and what it refuses."""

import json

import pytest
from drawn_words import ORIGINAL, drawn_questions, drawn_words

from data.vocabulary.word2vec import vector_files
from train import analogies

ALL = ('vectors.txt', '--questions', 'questions.txt')


@pytest.fixture
def folder(tmp_path):
  """The folder where `run_command` runs, with vectors, questions and pairs."""
  words, vectors = drawn_words()
  (tmp_path / 'vectors.txt').write_bytes(
    b''.join(vector_files.as_text(words, vectors))
  )
  (tmp_path / 'questions.txt').write_text(drawn_questions())
  (tmp_path / 'pairs.txt').write_text('waa waas 1\nwab WABS 2\nvalue name 3\n')
  (tmp_path / 'none.txt').write_text('c b 1\nd e 2\n')
  (tmp_path / 'text.txt').write_text(
    'the value of a name\nvalue, waas it WAA?\n'
  )
  return tmp_path


@pytest.mark.usefixtures('folder')
def test_files_and_weights_in_one_table(
  small_bert, small_elmo_folder, run_command
):
  arguments = *ALL, '--word_pairs', 'pairs.txt', '--first', 90
  beside = '--beside', small_bert, '--beside', small_elmo_folder
  figures = json.loads(
    run_command(analogies, *arguments, *beside, '--json').out
  )
  file, *models = figures['vectors']
  assert [each['name'] for each in models] == [
    str(small_bert),
    str(small_elmo_folder),
  ]
  total = file['layers'][0]['analogies']['total']
  assert (total['right'], total['known']) == ORIGINAL[90][0]
  assert file['layers'][0]['layer'] is None
  assert file['layers'][0]['word_pairs']['pairs']['known'] == 2
  for model in models:
    # The words of the file, in lower case and in upper case those beyond.
    assert model['words'] == 90
    (layer,) = model['layers']
    assert layer['layer'] == '0'
    assert layer['analogies']['total']['known'] == total['known']
    assert layer['word_pairs']['pairs']['known'] == 3
  text = run_command(analogies, *arguments, *beside).out
  header, _, *rows = [
    [cell.strip() for cell in line.strip('| \n').split(' | ')]
    for line in text.splitlines()
    if line.startswith('|')
  ]
  assert header[:5] == [
    'vectors',
    'analogies',
    'semantic',
    'syntactic',
    'known',
  ]
  assert rows[0][:5] == ['vectors.txt', '54.9', '59.1', '48.7', '293 of 1,056']
  assert rows[0][6] == '2 of 3'
  assert rows[1][0] == f'{small_bert}, layer 0' and len(rows) == 3
  assert text.endswith("people's scores.\n") and 'among 90 words' in text


def test_contexts_by_layer(folder, small_elmo_folder, run_command):
  pairs = '--word_pairs', 'pairs.txt', '--contexts', 'text.txt'
  out = run_command(analogies, small_elmo_folder, *pairs, '--json').out
  (found,) = json.loads(out)['vectors']
  assert [each['layer'] for each in found['layers']] == [
    '0 (embeddings)',
    '1',
    '2',
  ]
  for layer in found['layers']:
    assert 'analogies' not in layer
    assert layer['word_pairs']['pairs']['known'] == 2
  (folder / 'own.txt').write_text(': own\nvalue name waas it\n')
  with_questions = *pairs, '--questions', 'own.txt', '--json'
  out = run_command(analogies, small_elmo_folder, *with_questions).out
  (found,) = json.loads(out)['vectors']
  assert found['words'] == 10  # of the text, marks among them
  assert found['layers'][0]['analogies']['total']['known'] == 1
  (folder / 'words.txt').write_text('it\nwaas\nname\nvalue\nother\n')
  words = '--words', 'words.txt'
  out = run_command(analogies, small_elmo_folder, *with_questions, *words).out
  assert json.loads(out)['vectors'][0]['words'] == 4  # that the text has


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((*ALL, '--words', 'text.txt'), 'text.txt, line 1: found 5 words'),
    ((*ALL, '--contexts', 'text.txt'), '--contexts is of weights, and all vec'),
    ((*ALL, '--tokenizer', 'x'), '--tokenizer is of weights'),
    (
      (*ALL, '--first', '5'),
      'vectors.txt: found all four words of none of the',
    ),
    (
      ('runs/none', '--questions', 'questions.txt'),
      'runs/none is no file or folder here; a model of the hub would give vec',
    ),
    (
      ('vectors.txt', '--questions', 'text.txt'),
      'line 1: found 5 words, expec',
    ),
    (('vectors.txt', '--word_pairs', 'none.txt'), 'both words of 0 of 2 pairs'),
    (('questions.txt', *ALL[1:]), 'questions.txt'),
    (('none', *ALL[1:], '--words', 'pairs.txt'), 'pairs.txt, line 1: found 3'),
  ],
)
def test_what_is_refused(folder, run_command, arguments, message):
  with pytest.raises(SystemExit) as error:
    run_command(analogies, *arguments)
  assert message in str(error.value)


def test_weights_without_words_to_choose_from(
  folder, small_elmo_folder, run_command
):
  with pytest.raises(SystemExit) as error:
    run_command(analogies, small_elmo_folder, *ALL[1:])
  assert 'can give vectors of any word; expected the words' in str(error.value)


@pytest.mark.parametrize('options', [(), ('--first', '0', *ALL[1:])])
def test_options_that_make_no_sense(run_command, options):
  with pytest.raises(SystemExit) as error:
    run_command(analogies, 'none', *options)
  assert error.value.code == 2
