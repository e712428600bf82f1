"""Bad input is refused by its file and line, with what was expected."""

import pytest

from data.tasks import checks, examples, glue, registry


def load(folder, name, split, text, file='train.tsv'):
  path = folder / file
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return registry.load(registry.find(name), str(folder), split)


RTE = 'index\tsentence1\tsentence2\tlabel\n'


@pytest.mark.parametrize(
  'name, text, message',
  [
    (
      'rte',
      RTE + '0\tA.\tB.\tneutral\n',
      "train.tsv, line 2: found the label 'neutral', expected one of "
      "['entailment', 'not_entailment']",
    ),
    (
      'rte',
      'index\tsentence1\tsentence2\n0\tA.\tB.\n',
      "line 1: found the columns ['index', 'sentence1', 'sentence2'], expected "
      "among them ['label']",
    ),
    (
      'rte',
      'question\tsentence\tlabel\nA?\tB.\tentailment\n',
      "expected among them ['sentence1', 'sentence2']",
    ),
    (
      'rte',
      RTE + '0\tA.\tB.\tC.\tentailment\n',
      'line 2: found 5 columns, expected 4 with a tab between them and no '
      "quoting: '0\\tA.",
    ),
    ('rte', RTE + '0\tA.\n', 'line 2: found 2 columns, expected 4'),
    (
      'rte',
      RTE.replace('\t', ','),
      '. Columns are separated by tabs, or in a file that is named .csv by',
    ),
    (
      'rte',
      '"index"\t"sentence1"\t"sentence2"\t"label"\n',
      '. A .tsv file has no quoting',
    ),
    (
      'rte',
      RTE + '0\tA.\t \tentailment\n',
      'train.tsv, line 2: found an empty text 2 of 2, expected words',
    ),
    ('sst2', 'sentence\tlabel\nA.\t1\n \t1\n', 'line 3: found an empty text, '),
    (
      'rte',
      RTE + '7\tA.\tB.\tentailment\n\n7\tC.\tD.\tentailment\n',
      "line 4: found the id '7' of ",
    ),
    ('rte', RTE, 'train.tsv: found no example, expected those of the split'),
    ('rte', '', 'train.tsv: is empty; expected a line for every example'),
    (
      'stsb',
      'index\tsentence1\tsentence2\tscore\n0\tA.\tB.\tgood\n',
      "line 2: found the score 'good', expected a number",
    ),
    (
      'stsb',
      'index\tsentence1\tsentence2\tscore\n0\tA.\tB.\t5.1\n',
      'line 2: found the score 5.1, expected 0 to 5',
    ),
    (
      'stsb',
      'index\tsentence1\tsentence2\tscore\n0\tA.\tB.\tnan\n',
      'line 2: found the score nan, expected 0 to 5',
    ),
    ('cola', 'gj04\t1\t\tA.\ngj04\t1\tA.\n', 'line 2: found 3 columns, expect'),
    ('cola', 'gj04\tyes\t\tA.\n', "line 1: found the label 'yes', expected"),
    (
      'qqp',
      'id\tquestion1\tquestion2\tis_duplicate\n0\t\t\t1\n',
      'line 2: found an empty text 1 of 2, expected words',
    ),
    (
      'sst2',
      b'sentence\tlabel\nA\xff.\t1\n',
      'train.tsv: not UTF-8 at byte 16 (0xff: invalid start byte) in line 2',
    ),
    ('sst2', b'sentence\tlabel\nA\0.\t1\n', 'train.tsv: binary, not text'),
  ],
)
def test_what_is_wrong_is_named_by_its_line(tmp_path, name, text, message):
  with pytest.raises(ValueError) as error:
    load(tmp_path, name, 'train', text)
  assert message in str(error.value)
  assert str(tmp_path) in str(error.value)


def test_the_place_of_both_duplicates_is_told(tmp_path):
  text = RTE + '7\tA.\tB.\tentailment\n7\tC.\tD.\tentailment\n'
  file = tmp_path / 'train.tsv'
  with pytest.raises(ValueError) as error:
    load(tmp_path, 'rte', 'train', text)
  assert str(error.value) == (
    f"{file}, line 3: found the id '7' of {file}, line 2 again, expected ids "
    'that tell examples apart'
  )


def test_byte_order_marks_and_line_ends_are_no_text(tmp_path):
  text = '\ufeff' + RTE.replace('\n', '\r\n') + '0\tA "x.\tB.\tentailment\r\n'
  assert load(tmp_path, 'rte', 'train', text) == [
    examples.TextExample('0', ('A "x.', 'B.'), 'entailment')
  ]


def test_test_files_need_no_labels(tmp_path):
  text = 'index\tsentence1\tsentence2\n0\tA.\tB.\n'
  (found,) = load(tmp_path, 'rte', 'test', text, 'test.tsv')
  assert found.label is None
  # What has some is read with them.
  (found,) = load(
    tmp_path, 'rte', 'test', RTE + '0\tA.\tB.\tentailment\n', 'test.tsv'
  )
  assert found.label == 'entailment'


def test_the_folder_of_another_task_is_refused(tmp_path):
  """WNLI's files have RTE's columns."""
  folder = tmp_path / 'WNLI'
  folder.mkdir()
  with pytest.raises(
    ValueError,
    match=r"train.tsv: found the folder of the task 'wnli', expected one of "
    r"'rte': \['RTE'",
  ):
    load(folder, 'rte', 'train', RTE + '0\tA.\tB.\t1\n')


def test_a_file_of_any_name_is_read_but_not_another_tasks(tmp_path):
  rte = registry.find('rte')
  file = tmp_path / 'some.tsv'
  file.write_text('sentence1\tsentence2\nA.\tB.\n')
  assert registry.read_file(rte, file, 'test') == [
    examples.TextExample('0', ('A.', 'B.'), None)
  ]
  (tmp_path / 'WNLI').mkdir()
  with pytest.raises(ValueError, match="found the folder of the task 'wnli'"):
    registry.read_file(rte, file.rename(tmp_path / 'WNLI/test.tsv'), 'test')


def test_missing_files_are_told_with_what_is_there(tmp_path):
  (tmp_path / 'STS-B').mkdir()
  (tmp_path / 'STS-B/dev.tsv').touch()
  (tmp_path / 'dev-v1.1.json').touch()
  with pytest.raises(FileNotFoundError) as error:
    registry.load(registry.find('squad2'), str(tmp_path), 'dev')
  message = str(error.value)
  assert message.startswith(
    f'task squad2: found no dev-v2.0.json in {tmp_path}, {tmp_path}/squad'
  )
  assert 'expected the files of SQuAD 2.0 (https://rajpurkar' in message
  assert 'The folder holds STS-B, dev-v1.1.json' in message
  assert 'It has files of stsb, squad1' in message
  with pytest.raises(FileNotFoundError, match='There is no folder /nowhere'):
    registry.load(registry.find('squad2'), '/nowhere', 'dev')


def test_unknown_names_are_told_with_the_nearest():
  assert registry.find('sst2') is glue.SST2
  with pytest.raises(ValueError) as error:
    registry.find('STS-B')
  message = str(error.value)
  assert message.startswith("found no task 'STS-B', expected one of cola, ")
  assert message.endswith("Did you mean 'stsb'?")
  with pytest.raises(ValueError, match=r'squad1.*xnli\.$'):
    registry.find('nothing like it')
  with pytest.raises(ValueError, match="found the split 'valid', expected one"):
    registry.load(registry.find('rte'), '/nowhere', 'valid')


@pytest.mark.parametrize(
  'limits, example, message',
  [
    (
      {'kind': 'classification', 'num_texts': 2},
      examples.TextExample('0', ('a',), None),
      'found 1 texts, expected 2',
    ),
    (
      {'kind': 'choice', 'num_choices': 3},
      examples.ChoiceExample('0', 'a', '', ('b', 'c'), None),
      'found 2 choices, expected 3',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', 'a', '', ('b',), None),
      'found 1 choices, expected 2 or more',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', 'a', '', ('b', ' '), None),
      'found an empty choice 2 of 2, expected words',
    ),
    (
      {'kind': 'choice', 'allow_empty': True},
      examples.ChoiceExample('0', 'a', '', ('', ' '), None),
      'found an empty choice 1 of 2, expected words',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', '', ' ', ('b', 'c'), None),
      'found neither context nor question, expected words',
    ),
    (
      {'kind': 'choice'},
      examples.ChoiceExample('0', 'a', '', ('b', 'c'), 2),
      'found 2 as the right choice, expected 0 to 1',
    ),
    (
      {'kind': 'tagging'},
      examples.TaggedExample('0', (), None),
      'found an empty sentence, expected words',
    ),
    (
      {'kind': 'tagging'},
      examples.TaggedExample('0', ('a', ' '), None),
      "found the word ' ', expected a word",
    ),
    (
      {'kind': 'tagging', 'labels': ('O',)},
      examples.TaggedExample('0', ('a', 'b'), ('O',)),
      'found 1 tags, expected one for each of 2 words',
    ),
  ],
)
def test_whatever_the_source_examples_are_checked(limits, example, message):
  with pytest.raises(ValueError) as error:
    checks.gather(
      [('record 5', example)], 'test', checks.Limits(**limits), 'here'
    )
  assert str(error.value) == f'record 5: {message}'
