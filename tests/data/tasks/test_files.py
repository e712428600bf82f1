"""Bad files are refused by file and line, with the expected content."""

import gzip

import pytest
from etils import epath
from task_tables import table

from data.tasks import examples, registry


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
    ('rte', RTE.replace('\t', '|'), '. Columns are separated by tabs, or in a'),
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
      "line 2: found the score 'nan', expected a number",
    ),
    (
      'stsb',
      'index\tsentence1\tsentence2\tscore\tscore\n0\tA.\tB.\t5.1\t1\n',
      "line 1: found 2 columns of the title 'score', expected one",
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


def test_byte_order_marks_and_line_ends_are_no_text(tmp_path):
  text = '\ufeff' + RTE.replace('\n', '\r\n') + '0\tA "x.\tB.\tentailment\r\n'
  assert load(tmp_path, 'rte', 'train', text) == [
    examples.TextExample('0', ('A "x.', 'B.'), 'entailment')
  ]


def test_files_may_be_compressed(tmp_path):
  file = tmp_path / 'train.tsv.gz'
  file.write_bytes(gzip.compress(table('sentence|label', 'good|1').encode()))
  found = registry.find('sst2').read(epath.Path(file), 'train')
  assert found == [examples.TextExample('0', ('good',), '1')]


@pytest.mark.parametrize(
  ('name', 'file', 'split'),
  [
    ('mnli', 'test_mismatched.tsv', 'test_mismatched'),
    ('mnli', 'diagnostic.tsv', 'diagnostic'),
    ('squad1', 'dev-v1.1.json', 'dev'),
    ('rte', 'mine.tsv', None),
  ],
)
def test_official_files_tell_their_split(name, file, split):
  assert registry.split_of(registry.find(name), f'anywhere/{file}') == split
