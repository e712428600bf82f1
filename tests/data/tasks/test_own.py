"""Tasks of one's own files, from settings alone."""

import gzip
import json
import pathlib

import pytest

from data.scoring import kinds
from data.tasks import examples, registry


@pytest.fixture
def write(tmp_path):
  """Returns a function (name, text or records) -> path of the file."""

  def write_one(name, content):
    if not isinstance(content, str):
      content = ''.join(json.dumps(record) + '\n' for record in content)
    path = tmp_path / name
    path.write_text(content)
    return str(path)

  return write_one


def test_single_texts_as_jsonl(write):
  train = write(
    'train.jsonl',
    [
      {'body': 'Good "one".', 'mood': 'glad', 'id': 'x'},
      {'body': 'Bad.', 'mood': 'angry'},
    ],
  )
  dev = write('dev.jsonl', [{'body': 'So.', 'mood': 'sad'}])
  test = write('test.jsonl', [{'body': 'Who knows.'}])
  task = kinds.own_task(
    kind='classification',
    train=train,
    dev=dev,
    test=test,
    text=('body',),
    label='mood',
  )
  assert task.labels == ('angry', 'glad')
  assert task.metrics == ('accuracy',)
  assert registry.load(task, '', 'train') == [
    examples.TextExample('x', ('Good "one".',), 'glad'),
    examples.TextExample('1', ('Bad.',), 'angry'),
  ]
  assert registry.load(task, '/anywhere', 'test') == [
    examples.TextExample('0', ('Who knows.',), None)
  ]
  with pytest.raises(
    ValueError,
    match=r"dev.jsonl, line 1: found the label 'sad', expected one of "
    r"\['angry', 'glad'\]",
  ):
    registry.load(task, '', 'dev')


@pytest.mark.parametrize('mark, name', [('\t', 'tsv'), (',', 'csv')])
def test_pairs_as_tables(write, mark, name):
  def table(*rows):
    return ''.join(mark.join(row) + '\n' for row in rows)

  train = write(
    f'train.{name}',
    table(('id', 'a', 'b', 'same'), ('q1', 'A.', 'B.', '1'), ('q2',) * 4),
  )
  test = write(f'test.{name}', table(('b', 'a'), ('B.', 'A.')))
  task = kinds.own_task(
    kind='classification',
    train=train,
    dev=train,
    test=test,
    text=('a', 'b'),
    label='same',
    labels=('1', 'q2'),
    symmetric=True,
    metrics=('f1', 'accuracy'),
  )
  assert task.metrics == ('f1', 'accuracy')
  assert task.symmetric and task.num_texts == 2
  assert registry.load(task, '', 'dev') == [
    examples.TextExample('q1', ('A.', 'B.'), '1'),
    examples.TextExample('q2', ('q2', 'q2'), 'q2'),
  ]
  (found,) = registry.load(task, '', 'test')
  assert found == examples.TextExample('0', ('A.', 'B.'), None)


def test_a_table_in_the_quotes_of_csv_is_refused(write):
  text = 'sentence\tlabel\nfine "so"\t1\n"He said ""no""."\t0\n'
  quoted = write('train.tsv', text)
  with pytest.raises(
    ValueError, match='train.tsv, line 3: found a field in the quotes of CSV'
  ):
    kinds.own_task(kind='classification', train=quoted, dev=quoted)
  comma = write('train.csv', text.replace('\t', ',').replace(' "so"', ''))
  task = kinds.own_task(kind='classification', train=comma, dev=comma)
  assert registry.load(task, '', 'dev')[1].texts == ('He said "no".',)
  content = pathlib.Path(comma).read_bytes()
  packed = pathlib.Path(write('train.CSV.gz', ''))
  packed.write_bytes(gzip.compress(content))
  task = kinds.own_task(
    kind='classification', train=str(packed), dev=str(packed)
  )
  assert registry.load(task, '', 'dev')[1].texts == ('He said "no".',)


def test_scores(write):
  train = write(
    'train.jsonl',
    [{'sentence': 'A.', 'label': 1}, {'sentence': 'B.', 'label': 2.5}],
  )
  dev = write('dev.jsonl', [{'sentence': 'C.', 'label': 3}])
  task = kinds.own_task(kind='regression', train=train, dev=dev)
  assert task.score_range == (1.0, 2.5)
  assert task.metrics == ('spearman', 'pearson')
  with pytest.raises(
    ValueError, match=r'line 1: found the score 3.0, expected'
  ):
    registry.load(task, '', 'dev')
  task = kinds.own_task(
    kind='regression', train=train, dev=dev, score_range=(0, 5)
  )
  assert [e.label for e in registry.load(task, '', 'dev')] == [3.0]
  with pytest.raises(ValueError, match=r'found the scores \[3.0\] alone'):
    kinds.own_task(kind='regression', train=dev, dev=dev)


def test_choices(write):
  record = {'context': 'Hot.', 'question': 'Why', 'choices': ['sun', 'ice']}
  train = write('train.jsonl', [{**record, 'label': 0}])
  dev = write('dev.jsonl', [{**record, 'choices': ['a', 'b', 'c'], 'label': 0}])
  task = kinds.own_task(kind='choice', train=train, dev=dev)
  assert task.num_choices == 2
  expected = examples.ChoiceExample('0', 'Hot.', 'Why', ('sun', 'ice'), 0)
  assert registry.load(task, '', 'train') == [expected]
  with pytest.raises(ValueError, match='line 1: found 3 choices, expected 2'):
    registry.load(task, '', 'dev')
  table = write(
    'train.csv', 'context,question,choice0,choice1,label\nHot.,Why,sun,ice,0\n'
  )
  task = kinds.own_task(kind='choice', train=table, dev=table)
  assert registry.load(task, '', 'dev') == [expected]


@pytest.mark.parametrize('mark', '\t ')
def test_tags(write, mark):
  columns = '-DOCSTART-\n\nAnn NN I-PER\nruns VB O\n\nBob NN I-PER\n'
  train = write('train.txt', columns.replace(' ', mark))
  test = write('test.txt', 'Eve\nruns\n')
  task = kinds.own_task(kind='tagging', train=train, dev=train, test=test)
  assert task.labels == ('B-PER', 'O')
  assert task.metrics == ('f1', 'precision', 'recall')
  first, second = registry.load(task, '', 'train')
  assert first == examples.TaggedExample(
    '0', ('Ann', 'runs'), ('B-PER', 'O'), 1, (('NN',), ('VB',))
  )
  assert second.words == ('Bob',)
  (found,) = registry.load(task, '', 'test')
  assert found == examples.TaggedExample('0', ('Eve', 'runs'), None)


def test_tags_as_jsonl(write):
  record = {'words': ['Ann', 'runs'], 'tags': ['NN', 'VB']}
  train = write('train.jsonl', [record])
  task = kinds.own_task(kind='tagging', train=train, dev=train)
  assert (task.labels, task.metrics) == (('NN', 'VB'), ('accuracy',))
  (found,) = registry.load(task, '', 'dev')
  assert found.tags == ('NN', 'VB')
  bad = write('bad.jsonl', [record, {**record, 'words': 'Ann runs'}])
  with pytest.raises(ValueError, match="line 2: found 'Ann runs' in the field"):
    kinds.own_task(kind='tagging', train=bad, dev=train)


def test_spans(write):
  record = {'question': ' Who? ', 'context': 'Ann ran.'}
  told = {**record, 'answers': [{'text': 'Ann', 'answer_start': 0}]}
  train = write('train.jsonl', [told, {**record, 'answers': []}])
  test = write('test.jsonl', [record])
  task = kinds.own_task(kind='span', train=train, dev=train, test=test)
  assert task.metrics == ('f1', 'em')
  assert registry.load(task, '', 'dev') == [
    examples.SpanExample('0', 'Who?', 'Ann ran.', (('Ann', 0),)),
    examples.SpanExample('1', 'Who?', 'Ann ran.', ()),
  ]
  assert not registry.load(task, '', 'test')[0].is_labelled
  bad = write('bad.jsonl', [{**record, 'answers': [{'text': 'Ann'}]}])
  task = kinds.own_task(kind='span', train=bad, dev=train)
  with pytest.raises(ValueError, match=r'bad.jsonl, line 1: found the fields'):
    registry.load(task, '', 'train')
  paragraph = {'context': 'Ann ran.', 'qas': [{**told, 'id': 'a'}]}
  whole = {'data': [{'paragraphs': [paragraph]}]}
  squad = write('dev.json', json.dumps(whole))
  task = kinds.own_task(kind='span', train=squad, dev=squad)
  assert registry.load(task, '', 'dev')[0].id == 'a'


def test_nothing_is_read_where_all_is_told():
  """A finished run predicts where its training file is not."""
  task = kinds.own_task(
    kind='classification', train='gone.tsv', dev='gone.tsv', labels=('a', 'b')
  )
  with pytest.raises(
    FileNotFoundError, match='gone.tsv: found no such file, expected the split'
  ):
    registry.load(task, '', 'train')
  with pytest.raises(FileNotFoundError):
    kinds.own_task(kind='classification', train='gone.tsv', dev='gone.tsv')


def test_a_class_alone_is_refused(write):
  train = write('train.jsonl', [{'sentence': 'A.', 'label': 'a'}])
  with pytest.raises(
    ValueError, match=r"found the labels \['a'\], expected two"
  ):
    kinds.own_task(kind='classification', train=train, dev=train)
  task = kinds.own_task(
    kind='classification', train=train, dev=train, labels=('a', 'b')
  )
  assert task.labels == ('a', 'b')


def test_tags_of_json_begin_entities_as_those_in_columns(write):
  train = write(
    'train.jsonl', [{'words': ['In', 'Oslo'], 'tags': ['O', 'I-LOC']}]
  )
  task = kinds.own_task(
    kind='tagging', train=train, dev=train, labels=('O', 'B-LOC', 'I-LOC')
  )
  (example,) = registry.load(task, '', 'dev')
  assert example.tags == ('O', 'B-LOC')


@pytest.mark.parametrize(
  'settings, message',
  [
    ({'kind': 'parsing'}, "own.kind='parsing': expected one of"),
    ({'kind': 'span', 'dev': ''}, 'own.dev is empty: expected a file'),
    (
      {'kind': 'classification', 'text': ('a', 'b', 'c')},
      "own.text=('a', 'b', 'c'): expected one field or two",
    ),
  ],
)
def test_wrong_settings_are_refused(settings, message):
  with pytest.raises(ValueError) as error:
    kinds.own_task(**{'train': 'a.tsv', 'dev': 'b.tsv', **settings})
  assert message in str(error.value)


@pytest.mark.parametrize(
  'kind, line, message',
  [
    ('classification', '{"sentence": "A."}', "expected among them ['label']"),
    (
      'classification',
      '{"sentence": 5, "label": "a"}',
      "found int in the field 'sentence', expected text",
    ),
    (
      'classification',
      '{"sentence": "A.", "label": true}',
      'found the label True, expected text or a whole number',
    ),
    (
      'classification',
      '{"sentence": "A.", "label": 0.5}',
      'found the label 0.5, expected text or a whole number',
    ),
    (
      'classification',
      '{"sentence": "A.", "label": " "}',
      'found an empty label, expected one',
    ),
    (
      'tagging',
      '{"words": ["word", "Oslo"], "tags": ["tag", "B-LOC"]}',
      "found the tag 'tag', expected O or the tag of an entity, such as",
    ),
    (
      'regression',
      '{"sentence": "A.", "label": true}',
      'found the score True, expected a number',
    ),
    *(
      (
        'regression',
        f'{{"sentence": "A.", "label": {score}}}',
        'expected a number',
      )
      for score in ('1e999', '-Infinity', 'NaN', '"inf"', '9' * 400)
    ),
    (
      'choice',
      '{"context": "A.", "choices": "B.", "label": 0}',
      "found 'B.' in the field 'choices', expected a list of",
    ),
    (
      'choice',
      '{"context": "A.", "choices": ["B.", "C."], "label": "B."}',
      "found 'B.' as the right choice, expected its number from 0",
    ),
    (
      'choice',
      '{"context": "A.", "question": 1, "choices": ["B."], "label": 0}',
      "found int in the field 'question', expected text",
    ),
    ('classification', '["A."]', 'found list, expected an object with the fie'),
    ('classification', 'A.', 'not JSON'),
  ],
)
def test_wrong_records_are_named(write, kind, line, message):
  train = write('train.jsonl', f'\n{line}\n')
  with pytest.raises(ValueError) as error:
    kinds.own_task(kind=kind, train=train, dev=train)
  assert str(error.value).startswith(f'{train}, line 2: ')
  assert message in str(error.value)
