"""Data sets of Hugging Face: folders of save_to_disk and of the hub."""

import json
import sys

import pytest
from small_tables import FEATURES, WRITERS, make_table, write_saved
from text_sources import texts_of

from data.text import languages, sources
from data.text.tables import data_sets, table

TABLE = make_table([f'Text {i}.' for i in range(7)])
README = """---
configs:
- config_name: plain
  data_files:
  - split: train
    path: data/train-*
  - split: test
    path: [data/test-0.parquet]
- config_name: small
  data_files: other/*.parquet
dataset_info:
  config_name: small
  features:
  - name: label
    dtype:
      class_label:
        names: {'0': 'no', '1': 'yes'}
---
# A card
"""


def read(spec, **options):
  return texts_of(sources.open_source(str(spec), **options))


def numbers(texts):
  return [int(text.split()[1][:-1]) for text in texts]


def test_a_saved_split(tmp_path):
  write_saved(tmp_path / 'one', TABLE, files=3)
  assert numbers(read(tmp_path / 'one')) == list(range(7))
  with pytest.raises(ValueError, match='is a single split of save_to_disk'):
    sources.open_source(f'hf:{tmp_path}/one:test')


def test_a_choice_of_rows_is_applied(tmp_path):
  rows = [5, 0, 6, 5, 2]
  write_saved(tmp_path / 'old', TABLE, indices=rows)
  source = sources.open_source(str(tmp_path / 'old'))
  assert numbers(texts_of(source)) == rows
  assert source.bytes_read == source.num_bytes
  write_saved(tmp_path / 'old', TABLE, indices=[1, 7])
  with pytest.raises(
    ValueError, match='row 2: found the row 7, expected 0 to 6'
  ):
    read(tmp_path / 'old')


def test_several_saved_splits(tmp_path):
  (tmp_path / 'dataset_dict.json').write_text('{"splits": ["train", "test"]}')
  write_saved(tmp_path / 'train', TABLE)
  write_saved(tmp_path / 'test', TABLE.slice(4))
  assert numbers(read(tmp_path)) == list(range(7))
  assert numbers(read(f'hf:{tmp_path}:test')) == [4, 5, 6]
  found = sources.open_source(str(tmp_path))
  assert "the split 'train' (not of test)" in found.description
  with pytest.raises(
    ValueError, match="no split 'dev', expected one of train, test"
  ):
    sources.open_source(f'hf:{tmp_path}:dev')


def test_damaged_saved_folders_are_named(tmp_path):
  folder = write_saved(tmp_path / 'one', TABLE)
  (folder / 'data-00001-of-00002.arrow').unlink()
  with pytest.raises(FileNotFoundError, match='state.json names it. Copy the'):
    sources.open_source(str(folder))
  (folder / 'state.json').write_text('{"_data_files": 3}')
  with pytest.raises(ValueError, match="no list '_data_files' .* is int"):
    sources.open_source(str(folder))


def test_a_saved_file_that_was_cut_is_named(tmp_path):
  for name, indices in (('new', None), ('old', [0, 1])):
    folder = write_saved(tmp_path / name, TABLE, indices=indices)
    path = folder / 'data-00001-of-00002.arrow'
    path.write_bytes(path.read_bytes()[:-8])  # without the mark of its end
    with pytest.raises(ValueError, match=f'{path}: the file is cut off'):
      read(folder)


@pytest.fixture
def hub(tmp_path):
  for name in ('data/train-0', 'data/train-1', 'data/test-0', 'other/a'):
    path = tmp_path / f'{name}.parquet'
    path.parent.mkdir(exist_ok=True)
    WRITERS['a.parquet'](path, TABLE.slice(len(name) % 3, 2))
  (tmp_path / 'README.md').write_text(README)
  return tmp_path


@pytest.mark.parametrize(
  'info',
  [
    '{',
    '[' * 100_000,
    '[1]',
    '{"features": [1]}',
    '{"features": {"label": {"_type": "ClassLabel", "names": [1]}}}',
  ],
)
def test_a_damaged_description_of_a_saved_folder_is_named(info, tmp_path):
  write_saved(tmp_path, TABLE.replace_schema_metadata(None))
  (tmp_path / 'dataset_info.json').write_text(info)
  with pytest.raises(ValueError, match='dataset_info.json: found no features'):
    read(tmp_path)


def test_a_folder_of_the_hub_by_its_readme(hub):
  with pytest.raises(
    ValueError, match="no config 'default', expected one of plain, small"
  ):
    sources.open_source(str(hub))
  assert len(read(f'hf:{hub}:plain')) == 4
  assert len(read(f'hf:{hub}:plain:test')) == 2
  source = sources.open_source(f'hf:{hub}:small')
  assert len(texts_of(source)) == 2
  assert source.dropped_files['file beside the tables'] == [f'{hub}/README.md']
  (hub / 'README.md').write_text(
    README.replace('name: plain\n', 'name: plain\n  default: true\n')
  )
  assert len(read(hub)) == 4
  found = data_sets.find('', str(hub), 'small', '').tables
  found[0].classes['label'] = ['bad', 'good']  # the file's own


def test_classes_of_a_readme(hub):
  bare = TABLE.replace_schema_metadata({})
  WRITERS['a.parquet'](hub / 'other' / 'a.parquet', bare)
  found = data_sets.find('', str(hub), 'small', '').tables
  labels = [record['label'] for _, record in table.records(found, ['label'])]
  assert labels[:3] == ['no', 'yes', 'no']


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (README.replace('train-*', 'none-*'), 'no file of the split .train. that'),
    ('---\na: [\n---\n', 'README.md: found front matter that is not YAML'),
    (
      README.replace('data/train-*', 'README.md'),
      'found .*README.md of the sp',
    ),
  ],
)
def test_wrong_readmes_are_named(text, message, hub):
  (hub / 'README.md').write_text(text)
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    sources.open_source(f'hf:{hub}:plain')


def config_of(files):
  return f'configs:\n- {{config_name: plain, data_files: {files}}}'


def classes_of(names):
  return (
    'dataset_info: {features: [{name: label, dtype: {class_label: {names:'
    f' {names}}}}}}}]}}'
  )


@pytest.mark.parametrize(
  ('matter', 'message'),
  [
    ('a: 2024-99-99', 'found front matter that is not YAML: month must be in'),
    (f'a: {"[" * 5000}', 'found front matter that is not YAML: maximum recurs'),
    ('configs: 3', 'configs: found 3, expected a list, each an object with co'),
    (
      'configs: [plain]',
      r"configs\[0\]: found 'plain', expected an object wit",
    ),
    (
      config_of('[]'),
      r'configs\[0\].data_files: found \[\], expected a pattern, or an object',
    ),
    (
      config_of('{train: a}'),
      r"configs\[0\].data_files: found \{'train': 'a'\}, expected a list, each "
      'a pattern, or an object with split and path',
    ),
    (
      config_of('[{path: a}, 1]'),
      r'configs\[0\].data_files\[1\]: found 1, expected a pattern, or an obj',
    ),
    (
      config_of('[{path: [1]}]'),
      r'configs\[0\].data_files.path: found \[1\], expected a pattern or sev',
    ),
    (
      config_of('[{split: train}]'),
      'data_files.path: found None, expected a p',
    ),
    (
      'configs: [{data_dir: none}]',
      r"configs\[0\].data_dir: found 'none', expected a folder of tables",
    ),
    ('dataset_info: [x]', r"dataset_info\[0\]: found 'x', expected an object"),
    (
      'dataset_info: {features: {label: int64}}',
      r"dataset_info.features: found \{'label': 'int64'\}, expected a list",
    ),
    (
      'dataset_info: {features: [label]}',
      r"dataset_info.features\[0\]: found 'label', expected an object with na",
    ),
    (
      classes_of('{a: no, b: 1}'),
      r"dataset_info.features, the classes of 'label': found \{'a': False, 'b'"
      r': 1\}, expected the numbers 0 to 1',
    ),
    (classes_of("{'0': bad, '2': good}"), 'expected the numbers 0 to 1'),
    (classes_of('[no, yes]'), r'found \[False, True\], expected names, in quo'),
    (classes_of('3'), 'found 3, expected names, in quotes'),
  ],
)
def test_wrong_front_matter_is_named(matter, message, tmp_path):
  WRITERS['a.parquet'](tmp_path / 'train.parquet', TABLE)
  (tmp_path / 'README.md').write_text(f'---\n{matter}\n---\n')
  with pytest.raises(ValueError, match=message) as error:
    read(tmp_path)
  assert str(error.value).startswith(f'{tmp_path}/README.md')
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  ('patterns', 'expected'),
  [
    ('en/a.csv', 'a'),
    ('[en/a.csv, en/*.csv]', 'abx'),
    ('"en/[!a].csv"', 'bx'),
    ('"./*/?.csv"', 'abx'),
    ('en/**', 'abxy'),
    ('"**/*.csv"', 'abxyz'),
    ('"**/deep/*"', 'y'),
    ('[{split: train, path: en/a.csv}, {split: train, path: z.csv}]', 'az'),
  ],
)
def test_patterns_of_files(patterns, expected, tmp_path):
  for name in ('en/a', 'en/b', 'en/x', 'en/deep/y', 'z'):
    path = tmp_path / f'{name}.csv'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'text\n{name[-1]}\n')
  matter = config_of(patterns)
  (tmp_path / 'README.md').write_text(f'---\n{matter}\n---\n')
  assert ''.join(sorted(read(tmp_path))) == expected
  for outside in ('/etc/*', '../*', 'https://a.b/c.csv', ''):
    matter = config_of(f'"{outside}"')
    (tmp_path / 'README.md').write_text(f'---\n{matter}\n---\n')
    with pytest.raises(FileNotFoundError, match='no file of the split .train.'):
      read(tmp_path)


def test_the_folders_of_configs(tmp_path):
  """Files below a data_dir have splits by their names, or by data_files."""
  for name in ('en/train', 'en/test', 'de/train', 'de/more/a', 'train'):
    path = tmp_path / f'{name}.csv'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'text\n{name}\n')
  (tmp_path / 'README.md').write_text(
    '---\nconfigs:\n- {config_name: en, data_dir: en}\n'
    '- {config_name: de, data_dir: ./de}\n'
    '- {config_name: more, data_dir: de, data_files: more/*.csv}\n---\n'
  )
  assert read(f'hf:{tmp_path}:en') == ['en/train']
  assert read(f'hf:{tmp_path}:en:test') == ['en/test']
  assert read(f'hf:{tmp_path}:de') == ['de/more/a', 'de/train']
  assert read(f'hf:{tmp_path}:more') == ['de/more/a']
  with pytest.raises(ValueError, match='expected one of en, de, more, as in'):
    read(tmp_path)


@pytest.mark.parametrize(
  ('names', 'spec', 'count'),
  [
    (['a', 'b'], '', 2),
    (['train', 'test'], '', 1),
    (['test', 'dev'], ':validation', 1),
    (['data/train-00000-of-00002', 'data/train-00001-of-00002'], '', 2),
    (['en/train-00000-of-00001', 'de/train-00000-of-00001'], ':de', 1),
    (['train/a', 'train/b', 'test/a'], ':train', 2),
    (['extra-00000-of-00001', 'train-00000-of-00001'], ':extra', 1),
  ],
)
@pytest.mark.parametrize('kind', ['.parquet', '.csv.gz'])
def test_splits_by_the_names_of_files(names, spec, count, kind, tmp_path):
  for name in names:
    path = tmp_path / f'{name}{kind}'
    path.parent.mkdir(exist_ok=True)
    WRITERS[f'a{kind}'](path, TABLE)
  found = data_sets.find(
    'x', str(tmp_path), *data_sets.parse(f'hf:x{spec}')[1:]
  )
  assert len(found.tables) == count


def test_folders_on_cloud_storage(gs, loopback, hub, tmp_path):
  write_saved(hub / 'saved', TABLE)
  write_saved(hub / 'old', TABLE, indices=[5, 0])
  WRITERS['file.arrow'](hub / 'file.arrow', TABLE)
  (hub / 'a.csv').write_text('text\nOne.\n')
  for path in hub.rglob('*.*'):
    name = str(path.relative_to(hub))
    loopback.storage.put(gs[5:], f'sets/{name}', path.read_bytes())
  for kind in ('plain', 'plain:test', 'small'):
    assert read(f'hf:{gs}/sets:{kind}') == read(f'hf:{hub}:{kind}')
  assert numbers(read(f'hf:{gs}/sets/saved')) == list(range(7))
  assert numbers(read(f'hf:{gs}/sets/old')) == [5, 0]
  assert numbers(read(f'{gs}/sets/file.arrow')) == list(range(7))
  assert read(f'{gs}/sets/*.csv') == ['One.']
  assert data_sets.is_local(f'hf:{gs}/sets:plain')
  assert not languages.may_download(f'hf:{gs}/sets:plain')
  with pytest.raises(ValueError, match='nothing is read from or written to s3'):
    sources.open_source('hf:s3://b/sets')


def test_wrong_names(tmp_path, monkeypatch):
  with pytest.raises(
    ValueError, match=r'expected hf:NAME\[:CONFIG\]\[:SPLIT\]'
  ):
    sources.open_source('hf:a:b:c:d')
  with pytest.raises(
    ValueError, match='no state.json of save_to_disk and no pa'
  ):
    (tmp_path / 'a.txt').write_text('One.')
    sources.open_source(f'hf:{tmp_path}')
  monkeypatch.setitem(sys.modules, 'datasets', None)
  with pytest.raises(
    ValueError, match=r"no such folder, and .* package datasets: .*'.\[hf\]'"
  ):
    sources.open_source('hf:nobody/nothing:train')


def test_folders_that_the_package_writes(tmp_path):
  datasets = pytest.importorskip(
    'datasets', reason="needs datasets (the extra 'hf')"
  )
  features = datasets.Features.from_dict(FEATURES)
  data = datasets.Dataset.from_dict(TABLE.to_pydict(), features=features)
  data.save_to_disk(tmp_path / 'one', num_shards=2)
  shuffled = data.shuffle(seed=1)
  datasets.DatasetDict(train=shuffled, test=data.select([3])).save_to_disk(
    tmp_path / 'several'
  )
  assert numbers(read(tmp_path / 'one')) == list(range(7))
  expected = numbers(shuffled['body'])
  assert numbers(read(tmp_path / 'several')) == expected
  found = data_sets.find('', str(tmp_path / 'several'), '', 'test').tables
  assert [r['label'] for _, r in table.records(found, ['label'])] == ['good']


def test_a_state_without_files_is_no_table(tmp_path):
  (tmp_path / 'state.json').write_text(json.dumps({'_data_files': []}))
  with pytest.raises(ValueError, match='state.json: found no file'):
    sources.open_source(f'hf:{tmp_path}')
