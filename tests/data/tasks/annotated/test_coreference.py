"""Documents with clusters: the real files, and wrong ones."""

import re
import shutil

import pytest

from data.scoring import kinds
from data.tasks import registry
from data.tasks.annotated import coreference

# Of the published counts, 23,320 mentions in 5,311 clusters and so on, 6, 1, 0
# and 1 clusters are joined to others, 7, 2, 1 and 1 mentions stand alone, and
# one document of test2 is left out.
COUNTS = {
  'train': (177, 10224, 177410, 23307, 5298),
  'dev': (30, 1575, 28119, 3815, 854),
  'test': (30, 1464, 28397, 3580, 857),
  'test2': (25, 1327, 17637, 1887, 449),
}


def counts(found):
  clusters = [cluster for example in found for cluster in example.clusters]
  return (
    len(found),
    sum(len(example.sentences) for example in found),
    sum(len(example.words) for example in found),
    sum(map(len, clusters)),
    len(clusters),
  )


def texts(example):
  return [
    [' '.join(example.words[first : last + 1]) for first, last in cluster]
    for cluster in example.clusters
  ]


def test_the_real_files_of_ontogum(sesame_data, capsys):
  task = registry.find('coref_gum')
  genres, notes, first = set(), {}, {}
  for split, expected in COUNTS.items():
    found = registry.load(task, str(sesame_data), split)
    notes[split] = re.sub(r'\S*/', '', capsys.readouterr().err).splitlines()
    assert counts(found) == expected
    if split != 'test2':
      genres |= {example.genre for example in found}
    for example in found:
      first.setdefault(example.genre, example)
  assert genres == set(task.labels)
  assert notes['train'] == [
    'train.tsv: 6 clusters joined to others with the same mention',
    'train.tsv: 7 mentions that are alone in their cluster left out; only the'
    ' scores with_singles count them',
  ]
  assert notes['test2'][0] == (
    'test2.tsv, line 12,616: found 3) without (3 before it in its sentence; '
    'the document GENTLE_poetry_road is left out (1 in the release)'
  )
  art, talk = first['academic'], first['conversation']
  assert art.id == 'GUM_academic_art'
  assert art.sentences[0][:2] == ('Aesthetic', 'Appreciation')
  assert set(art.speakers[0]) == {''}
  assert ['United Kingdom'] * 4 in [text[:4] for text in texts(art)]
  assert talk.speakers[0][0] == 'Alan'
  assert {name for names in talk.speakers for name in names} == {'Alan', 'Jon'}


def test_the_columns_of_conll_2012(sesame_data, tmp_path):
  task = registry.find('coref')
  samples = sesame_data / 'allennlp_samples'
  file = samples / 'coref/coref.gold_conll'
  found = registry.read_file(task, file, 'train')
  assert [example.id for example in found] == [
    'bc/cctv/00/cctv_0000; part 000',
    'bc/cctv/00/cctv_0000; part 003',
  ]
  assert found[0].genre == 'bc'
  assert set(found[0].speakers[0]) == {'Speaker#1'}
  assert texts(found[0])[0] == ['Hong Kong', 'Hong Kong']
  assert [len(cluster) for cluster in found[1].clusters] == [3, 2]
  # A folder of many files; of several languages English.
  for name in ('english/a', 'english/b', 'chinese/c'):
    (tmp_path / 'train/data' / name).mkdir(parents=True)
    shutil.copy(file, tmp_path / 'train/data' / name / 'x.v4_gold_conll')
  text = file.read_text().replace('cctv_0000', 'cctv_0001')
  (tmp_path / 'train/data/english/b/x.v4_gold_conll').write_text(text)
  found = registry.load(task, str(tmp_path), 'train')
  assert [e.id[-19:] for e in found] == [
    f'cctv_000{i}; part {part}' for i in (0, 1) for part in ('000', '003')
  ]


def test_all_of_winobias_is_read(sesame_data):
  task = registry.find('coref')
  files = sorted((sesame_data / 'winobias/conll_format').iterdir())
  assert len(files) == 8
  for file in files:
    found = registry.read_file(task, file, 'test')
    assert len(found) == 396
    assert {e.genre for e in found} == {'nw'}
    assert all(e.clusters for e in found)


def conll(columns, *, name='bc/x', part='000', width=12, end=True):
  """A document of CoNLL-2012; '' is the end of a sentence."""
  lines = [f'#begin document ({name}); part {part}']
  for i, column in enumerate(columns):
    fields = [name, '0', str(i), f'w{i}', *'-----', 'Ann', '*', column]
    lines.append('   '.join(fields[-width:]) if column else '')
  return '\n'.join([*lines, '', '#end document' if end else '']) + '\n'


def read(load, *documents, split='train'):
  return load('coref', split, {f'{split}.conll': ''.join(documents)})


def test_brackets_of_words(load, capsys):
  # Of one cluster, the mention that began last ends first.
  columns = ['(1|(1', '(2|1)', '1)|2)', '', '(2)', '(3)', '', '(3)', '-']
  (found,) = read(load, conll(columns))
  assert found.clusters == (
    ((0, 1), (0, 2)),
    ((1, 2), (3, 3)),
    ((4, 4), (5, 5)),
  )
  assert 'joined' not in capsys.readouterr().err
  (found,) = read(load, conll(['(3)|(4)', '(5)', '(3)', '(5)', '(4)']))
  assert found.clusters == (((0, 0), (2, 2), (4, 4)), ((1, 1), (3, 3)))
  assert 'train.conll: 1 clusters joined' in capsys.readouterr().err


def test_other_corpora(load, tmp_path, capsys):
  """Single mentions, an empty last column between tabs, `_` for none."""
  (found,) = read(load, conll(['(1)', '(1)', '(2)', '_']))
  assert found.clusters == (((0, 0), (1, 1)),)
  assert found.singles == ((2, 2),)
  assert '1 mentions that are alone in their cluster' in capsys.readouterr().err
  lines = conll(['(1)', '(1)', '-']).split('\n')
  tabs = '\n'.join(
    line if line.startswith('#') else '\t'.join(line.split()) for line in lines
  )
  assert tabs.count('\t-\n') == 1
  (found,) = read(load, tabs.replace('\t-\n', '\t\n'))
  assert found.clusters == (((0, 0), (1, 1)),)
  assert len(found.words) == 3


def test_a_test_file_without_brackets_has_no_labels(load):
  bare, full = conll(['-', '-']), conll(['(1)', '(1)'], name='bc/y')
  (found,) = read(load, bare, split='test')
  assert found.clusters is None and not found.is_labelled
  assert [e.clusters for e in read(load, bare, full, split='test')] == [
    (),
    (((0, 0), (1, 1)),),
  ]
  assert read(load, bare)[0].clusters == ()


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (
      conll(['(1', '', '1)']),
      r'line 2: found \(1 without 1\) after it in its sentence',
    ),
    (conll(['1)']), r'line 2: found 1\) without \(1 before it'),
    (conll(['(1)', 'x']), r"line 3: found the coreference 'x', expected brack"),
    (
      conll(['(1)'], width=11),
      r'line 2: found 11 columns, expected at least 12: .* speaker, entities',
    ),
    (conll(['(1)', '(1)'], end=False), 'line 1: found no end of this document'),
    (
      'x\n',
      r"line 1: found 'x', expected the first line of a document: #begin",
    ),
    (conll([]), r'line 1: found sentences of \[\] words'),
    (2 * conll(['-']), "found the id 'bc/x; part 000' of .*, line 1 again"),
  ],
)
def test_wrong_files_are_refused(load, text, message):
  with pytest.raises(ValueError, match=message):
    read(load, text)


def gum(columns, name='GUM_x'):
  words = [
    f'{i}\tw{i}\tw\tX\tX\t0\troot\t_\t{column}'
    for i, column in enumerate(columns, start=1)
  ]
  return '\n'.join([f'# newdoc id = {name}', '# genre = bio', *words, '', ''])


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (gum(['(1(2', '2)']), r'line 3: found \(1 without 1\) after it'),
    (gum(['(1)', '_']).replace('\tX\t', '\t'), 'line 3: found 8 columns, exp'),
    (
      '# genre = bio\n',
      "line 1: found '# genre = bio', expected the first line of .*: # newdoc",
    ),
  ],
)
def test_other_trouble_of_ontogum_is_an_error(load, text, message):
  with pytest.raises(ValueError, match=f'train.tsv, {message}'):
    load('coref_gum', 'train', {'train.tsv': text})


def test_an_empty_folder_is_told(tmp_path):
  (tmp_path / 'train').mkdir()
  (tmp_path / 'train/x.txt').touch()
  with pytest.raises(ValueError, match='found no document, expected files of'):
    registry.load(registry.find('coref'), str(tmp_path), 'train')


def test_own_files(tmp_path):
  file = tmp_path / 'mine.txt'
  file.write_text(
    conll(['(1)', '(1)'], name='zz/a') + conll(['-'], name='ab/a')
  )
  task = kinds.own_task(kind='coreference', train=str(file), dev=str(file))
  assert task.labels == ('ab', 'zz')
  assert task.metrics == coreference.METRICS
  assert len(registry.load(task, '', 'dev')) == 2
