"""Files are found by folder, name and split; the nearest is named."""

import pytest

from data.tasks import examples, glue, registry


def load(folder, name, split, text, file='train.tsv'):
  path = folder / file
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return registry.load(registry.find(name), str(folder), split)


RTE = 'index\tsentence1\tsentence2\tlabel\n'


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
  named = registry.missing(glue.SST2, 'hf:gs://bucket/set', ['train'])
  assert named.startswith('hf:gs://bucket/set: found a data set of Hugging Fac')


def test_unknown_names_are_told_with_the_nearest():
  assert registry.find('sst2') is glue.SST2
  with pytest.raises(ValueError) as error:
    registry.find('STS-B')
  message = str(error.value)
  assert message.startswith("found no task 'STS-B', expected one of ag_news, ")
  assert message.endswith("Did you mean 'stsb'?")
  with pytest.raises(ValueError, match=r'squad1.*xnli_zh\.$'):
    registry.find('nothing like it')
  with pytest.raises(ValueError, match="found the split 'valid', expected one"):
    registry.load(registry.find('rte'), '/nowhere', 'valid')
