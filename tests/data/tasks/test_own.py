"""Tasks of one's own files, from settings alone."""

import gzip
import json
import pathlib
import re
import time

import pyarrow as pa
import pytest
import small_tables
from pyarrow import parquet

from data.scoring import kinds, submissions
from data.tasks import examples, own, registry


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
  assert task.score_range == (1.0, 3.0)  # of dev, too
  assert len(registry.load(task, '', 'dev')) == 1
  assert task.metrics == ('spearman', 'pearson')
  task = kinds.own_task(
    kind='regression', train=train, dev=dev, score_range=(1.0, 2.5)
  )
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
  assert task.labels == ('B-PER', 'I-PER', 'O')
  assert task.metrics == ('f1', 'precision', 'recall')
  first, second = registry.load(task, '', 'train')
  assert first == examples.TaggedExample(
    '0', ('Ann', 'runs'), ('B-PER', 'O'), 1, (('NN',), ('VB',))
  )
  assert second.words == ('Bob',)
  (found,) = registry.load(task, '', 'test')
  assert found == examples.TaggedExample('0', ('Eve', 'runs'), None)


IN_IOB2 = ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'I-LOC', 'I-LOC')
SPELT = {
  'IOB1': 'I-PER I-PER B-PER O I-LOC I-LOC I-LOC',
  'IOB2': 'B-PER I-PER B-PER O B-LOC I-LOC I-LOC',
  'BIOES': 'B-PER E-PER S-PER O B-LOC I-LOC E-LOC',
  'BILOU': 'B-PER L-PER U-PER O B-LOC I-LOC L-LOC',
  'BMES': 'B-PER E-PER S-PER O B-LOC M-LOC E-LOC',
}


@pytest.mark.parametrize('form', ['B-PER', 'B_PER', 'PER-B', 'PER_B'])
@pytest.mark.parametrize('scheme', SPELT)
@pytest.mark.parametrize('ending', ['txt', 'jsonl'])
def test_every_spelling_of_spans_is_scored_by_f1(write, scheme, form, ending):
  def spell(tag):
    mark, _, kind = tag.partition('-')
    separator = form.strip('BPER')
    parts = (mark, kind) if form[0] == 'B' else (kind, mark)
    return separator.join(parts) if kind else tag

  tags = [spell(tag) for tag in SPELT[scheme].split()]
  words = 'Ann Lee Bob in New York City'.split()
  if ending == 'txt':
    text = ''.join(map('{}\t{}\n'.format, words, tags))
  else:
    text = [{'words': words, 'tags': tags}]
  train = write(f'train.{ending}', text)
  task = kinds.own_task(kind='tagging', train=train, dev=train)
  assert task.metrics == ('f1', 'precision', 'recall')
  assert sorted(task.labels) == ['B-LOC', 'B-PER', 'I-LOC', 'I-PER', 'O']
  (example,) = registry.load(task, '', 'dev')
  assert example.tags == IN_IOB2
  named = kinds.own_task(
    kind='tagging', train=train, dev=train, labels=('O', *sorted({*tags}))
  )
  assert registry.load(named, '', 'dev') == [example]


def test_a_mark_that_only_dev_has_is_known(write):
  train = write('train.txt', 'lest\tB-LST\nso\tO\n')
  dev = write('dev.txt', 'lest\tB-LST\nthat\tI-LST\n')
  task = kinds.own_task(kind='tagging', train=train, dev=dev)
  (example,) = registry.load(task, '', 'dev')
  assert example.tags == ('B-LST', 'I-LST')


def test_f1_of_tags_that_mark_no_spans_is_refused_in_the_plan(write):
  train = write('train.txt', 'Ann\tNN\nran\tVB\n')
  settings = dict(kind='tagging', train=train, dev=train)
  with pytest.raises(ValueError, match=r"own.metrics: found \['f1'\] and the"):
    kinds.own_task(**settings, metrics=('f1',))
  assert kinds.own_task(**settings).metrics == ('accuracy',)


def test_white_space_ends_a_sentence_and_a_line_of_tabs(write):
  train = write('train.txt', 'Ann\tB-PER\t\nran\tO\t\n\t\nBob\tB-PER \n')
  task = kinds.own_task(kind='tagging', train=train, dev=train)
  first, second = registry.load(task, '', 'train')
  assert (first.words, first.tags) == (('Ann', 'ran'), ('B-PER', 'O'))
  assert (second.words, second.tags) == (('Bob',), ('B-PER',))
  half = write('half.txt', 'Ann\tB-PER\nran\t\n')
  with pytest.raises(
    ValueError, match='half.txt, line 2: found 1 columns, exp'
  ):
    kinds.own_task(kind='tagging', train=half, dev=train)


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


HALF = '\\ud83d'  # of a surrogate pair, as JSON spells it
DEEP = '[' * 100_000 + ']' * 100_000
SQUAD = (
  '{"data": [{"paragraphs": [{"context": "A.", "qas": [{"id": "1",'
  ' "question": "TEXT", "answers": [{"text": "A.", "answer_start": 0}]}]}]}]}'
)


@pytest.mark.parametrize(
  ('kind', 'record'),
  [
    ('classification', '{"sentence": "TEXT", "label": "a"}'),
    ('tagging', '{"words": ["TEXT"], "tags": ["a"]}'),
    ('choice', '{"context": "A.", "choices": ["TEXT", "b"], "label": 0}'),
    (
      'span',
      '{"question": "Who?", "context": "A. TEXT", "answers":'
      ' [{"text": "A.", "answer_start": 0}]}',
    ),
    ('span', SQUAD),
  ],
)
def test_half_a_surrogate_pair_is_named(write, kind, record):
  good = record.replace('TEXT', r'\ud83d\ude00')
  name, place = 'dev.jsonl', 'dev.jsonl, line 2: .*'
  if record == SQUAD:
    name, place = 'dev.json', 'dev.json: .*'
  lines = [good, record.replace('TEXT', HALF)]
  dev = write(name, '\n'.join(lines[-1:] if record == SQUAD else lines))
  train = write(f'train{name[3:]}', good)
  labels = ('a', 'b') if kind in ('classification', 'tagging') else ()
  task = kinds.own_task(kind=kind, train=train, dev=dev, labels=labels)
  assert registry.load(task, '', 'train')
  with pytest.raises(ValueError, match=f'{place}is half a surrogate pair'):
    registry.load(task, '', 'dev')


def test_json_that_is_nested_too_deep_is_named(write):
  record = '{"sentence": "A.", "label": "a", "more": ' + DEEP + '}'
  train = write('train.jsonl', record)
  with pytest.raises(ValueError, match='line 1: .*nested too deep'):
    kinds.own_task(kind='classification', train=train, dev=train)
  dev = write('dev.json', SQUAD.replace('"TEXT"', DEEP))
  task = kinds.own_task(kind='span', train=dev, dev=dev)
  with pytest.raises(ValueError, match='dev.json: .*nested too deep'):
    registry.load(task, '', 'dev')


@pytest.mark.parametrize('ending', ['tsv', 'csv'])
def test_titles_again_are_refused(write, ending):
  mark = {'tsv': '\t', 'csv': ','}[ending]
  lines = ['sentence,label', 'A.,a', 'B.,b', 'sentence,label', 'C.,a']
  train = write(f'train.{ending}', '\n'.join(lines).replace(',', mark) + '\n')
  with pytest.raises(ValueError, match='line 4: found the line of titles'):
    kinds.own_task(kind='classification', train=train, dev=train)


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


def test_own_spans_are_written_as_squads(write, tmp_path):
  train = write('train.json', SQUAD.replace('TEXT', 'Who?'))
  task = kinds.own_task(kind='span', train=train, dev=train)
  found = registry.load(task, '', 'dev')
  predictions = [examples.Prediction(found[0].id, 'A.')]
  path = tmp_path / 'predictions.json'
  submissions.write(task, 'dev', found, predictions, path)
  assert json.loads(path.read_text()) == {'1': 'A.'}
  for name in ('train.tsv', 'train.csv'):
    table = write(name, 'question\tcontext\nWho?\tA.\n')
    task = kinds.own_task(kind='span', train=table, dev=table)
    with pytest.raises(
      ValueError, match='a table holds no spans, expected SQuA'
    ):
      registry.load(task, '', 'dev')


def test_many_classes_take_no_time_of_their_square(write):
  count = 30_000
  rows = ''.join(f'text\tclass {i}\n' for i in range(count))
  train = write('train.tsv', f'sentence\tlabel\n{rows}')
  began = time.process_time()
  task = kinds.own_task(kind='classification', train=train, dev=train)
  assert len(registry.load(task, '', 'train')) == len(task.labels) == count
  # Looked up one after the other, they would take twice that.
  assert time.process_time() - began < 4


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
      '{"sentence": "A.", "label": 0.5}',
      "field 'label': found the label 0.5, expected text, a whole number, true"
      ' or false',
    ),
    (
      'classification',
      '{"sentence": "A.", "label": " "}',
      "field 'label': found an empty label, expected one",
    ),
    (
      'classification',
      '{"sentence": " ", "label": "a"}',
      "field 'sentence': found an empty text, expected words",
    ),
    (
      'classification',
      '{"sentence": "A.", "label": null}',
      "field 'label': found no label, expected one: the split 'train' is for",
    ),
    (
      'tagging',
      '{"words": ["A"], "tags": null}',
      "field 'tags': found no label, expected one: the split 'train' is for",
    ),
    (
      'choice',
      '{"context": "A.", "choices": ["B.", "C."], "label": null}',
      "field 'label': found no label, expected one: the split 'train' is for",
    ),
    (
      'tagging',
      '{"words": ["word", "Oslo"], "tags": ["tag", "B-LOC"]}',
      "found the tag 'tag', expected O or the tag of an entity, such as",
    ),
    (
      'regression',
      '{"sentence": "A.", "label": true}',
      "field 'label': found the score True, expected a number",
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
      "field 'label': found 'B.' as the right choice, expected its number from",
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
  assert re.match(f'{train}, line 2(: |, field )', str(error.value))
  assert message in str(error.value)


@pytest.mark.parametrize('ending', ['jsonl', 'parquet'])
def test_truth_values_are_classes(write, tmp_path, ending):
  rows = [{'sentence': 'A.', 'label': i % 2 == 0} for i in range(3)]
  path = write('train.jsonl', rows)
  if ending == 'parquet':
    path = str(tmp_path / 'train.parquet')
    parquet.write_table(pa.Table.from_pylist(rows), path)
  task = kinds.own_task(kind='classification', train=path, dev=path)
  assert task.labels == ('false', 'true')
  labels = [example.label for example in registry.load(task, '', 'dev')]
  assert labels == ['true', 'false', 'true']


# Kind -> fields of an example.
OF_KIND = {
  'classification': {'sentence': 'A.', 'label': 'a'},
  'regression': {'sentence': 'A.', 'label': 1.5},
  'choice': {'context': 'A.', 'choices': ['B.', 'C.'], 'label': 0},
  'tagging': {'words': ['A'], 'tags': ['O']},
  'span': {'question': 'Who?', 'context': 'A.', 'answers': []},
}


@pytest.mark.parametrize('kind', OF_KIND)
@pytest.mark.parametrize('ending', ['jsonl', 'parquet'])
def test_an_empty_id_is_none(write, tmp_path, kind, ending):
  rows = [{'id': key, **OF_KIND[kind]} for key in ('x', None, None)]
  path = write('train.jsonl', rows)
  if ending == 'parquet':
    path = str(tmp_path / 'train.parquet')
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    if kind == 'span':
      columns['answers'] = [{'text': [], 'answer_start': []}] * 3
    parquet.write_table(pa.table(columns), path)
  task = kinds.own_task(
    kind=kind,
    train=path,
    dev=path,
    labels=('a', 'b') if kind == 'classification' else ('O', 'B-X'),
    score_range=(0, 2),
  )
  found = registry.load(task, '', 'dev')
  assert [example.id for example in found] == ['x', '1', '2']


def test_an_empty_id_of_commas_is_none(write):
  path = write('a.csv', 'id,sentence,label\n,A.,a\nx,B.,b\n,C.,a\n')
  task = kinds.own_task(kind='classification', train=path, dev=path)
  found = registry.load(task, '', 'dev')
  assert [example.id for example in found] == ['0', 'x', '2']


@pytest.mark.parametrize(
  ('answers', 'message'),
  [
    (
      {'text': ['A.', 'A'], 'answer_start': [0]},
      ', answers: found 2 in the list text and 1 in the list answer_start, exp',
    ),
    (
      {'text': 'A.', 'answer_start': 0},
      ", answers: found 'A.' in the field 'text', expected a list",
    ),
    (
      {'text': ['A.'], 'answer_start': 0},
      ", answers: found '0' in the field 'answer_start', expected a list",
    ),
    ('A.', ': found str as answers, expected a list of objects with text'),
    (None, ", field 'answers': found none, expected those of the question"),
  ],
)
def test_wrong_answers_are_named(write, answers, message):
  right = OF_KIND['span']
  path = write('a.jsonl', [right, {**right, 'answers': answers}])
  task = kinds.own_task(kind='span', train=path, dev=path)
  with pytest.raises(ValueError) as error:
    registry.load(task, '', 'train')
  assert str(error.value).startswith(f'{path}, line 2{message}')
  # Where the right answers need not be known, null is none.
  if answers is None:
    found = registry.read_file(task, path, 'test')
    assert [example.is_labelled for example in found] == [True, False]


@pytest.mark.parametrize('name', ['train.parquet', 'train.arrow'])
def test_binary_tables(tmp_path, name):
  path = tmp_path / name
  small_tables.WRITERS[
    'a.parquet' if name.endswith('parquet') else 'stream.arrow'
  ](path, small_tables.make_table(['One.', 'Two.', 'Three.']))
  task = kinds.own_task(
    kind='classification', train=str(path), dev=str(path), text=('body',)
  )
  assert task.labels == ('bad', 'good')  # the classes that the file names
  assert registry.load(task, '', 'train') == [
    examples.TextExample('0', ('One.',), 'bad'),
    examples.TextExample('1', ('Two.',), 'good'),
    examples.TextExample('2', ('Three.',), 'bad'),
  ]
  numbers = kinds.own_task(
    kind='regression',
    train=str(path),
    dev=str(path),
    text=('body',),
    label='id',
  )
  assert numbers.score_range == (0.0, 2.0)


def test_other_columns_of_a_binary_table_are_not_read(tmp_path):
  path = tmp_path / 'train.parquet'
  table = small_tables.make_table(['One.', 'Two.', 'Three.'])
  dates = pa.array([0, 1, 10**8], pa.date32())  # the last of the year 275760
  parquet.write_table(table.append_column('date', dates), path)
  task = {'kind': 'classification', 'train': str(path), 'dev': str(path)}
  found = kinds.own_task(**task, text=('body',))
  assert len(registry.load(found, '', 'train')) == 3
  with pytest.raises(
    ValueError, match=r"train.parquet, row 3: found date32.* column 'date'"
  ):
    kinds.own_task(**task, text=('body',), label='date')
  with pytest.raises(
    ValueError, match=r"row 1: found the fields \['body', 'date', 'id', 'label'"
  ):
    kinds.own_task(**task, text=('sentence',))


def test_data_sets_of_hugging_face(tmp_path):
  table = small_tables.make_table(['One.', 'Two.', 'Three.'])
  (tmp_path / 'dataset_dict.json').write_text('{"splits": ["train", "test"]}')
  small_tables.write_saved(tmp_path / 'train', table)
  # A test set without labels has the class -1.
  unknown = table.set_column(2, 'label', [[-1] * 3])
  unknown = unknown.replace_schema_metadata(table.schema.metadata)
  small_tables.write_saved(tmp_path / 'test', unknown)
  for train, test in (
    (f'hf:{tmp_path}:train', f'hf:{tmp_path}:test'),
    (str(tmp_path / 'train'), str(tmp_path / 'test')),
  ):
    task = kinds.own_task(
      kind='classification', train=train, dev=train, test=test, text=('body',)
    )
    assert task.labels == ('bad', 'good')
    assert len(registry.load(task, '', 'dev')) == 3
    found = registry.load(task, '', 'test')
    assert [example.label for example in found] == [None] * 3


def test_data_sets_on_cloud_storage(gs, loopback, tmp_path):
  table = small_tables.make_table(['One.', 'Two.', 'Three.'])
  for split in ('train', 'test'):
    file = tmp_path / f'{split}.parquet'
    parquet.write_table(table, file)
    loopback.storage.put(gs[5:], f'set/{file.name}', file.read_bytes())
  asked = dict(kind='classification', dev='test', text=('body',))
  task = kinds.own_task(source=f'hf:{gs}/set', train='train', **asked)
  examples = registry.load(task, '', 'train')
  assert [example.texts for example in examples] == [
    ('One.',),
    ('Two.',),
    ('Three.',),
  ]
  form = kinds.OWN_FORMS['classification']
  file, told = own.find_input(form, f'hf:{gs}/set:test', '--input')
  assert told == f"hf:{gs}/set:test: 1 file of the split 'test' (not of train)"
  assert registry.read_file(task, file, 'test') == examples
  with pytest.raises(ValueError, match="gs://.*: found no split 'trian', expe"):
    kinds.own_task(source=f'hf:{gs}/set', train='trian', **asked)


@pytest.mark.parametrize('name', ['train', 'train.jsonl'])
@pytest.mark.parametrize('place', ['', 'data'])
def test_a_data_set_without_its_mark_is_told(tmp_path, name, place):
  folder = tmp_path / 'reviews' / place
  folder.mkdir(parents=True)
  table = small_tables.make_table(['One.', 'Two.', 'Three.'])
  parquet.write_table(table, folder / 'train-00000-of-00001.parquet')
  source = str(tmp_path / 'reviews')
  asked = dict(kind='classification', dev=name, text=('body',))
  with pytest.raises(FileNotFoundError) as error:
    kinds.own_task(source=source, train=name, **asked)
  assert str(error.value).startswith(f'own.train={name}: not in {source}. The ')
  hint = f'. As a data set of Hugging Face it is data.source=hf:{source}, and'
  assert hint in str(error.value)
  # A table of another name is a misspelt file.
  with pytest.raises(FileNotFoundError) as error:
    kinds.own_task(source=source, train='trian.parquet', **asked)
  assert 'Hugging' not in str(error.value)
  asked |= dict(dev='train')
  task = kinds.own_task(source=f'hf:{source}', train='train', **asked)
  assert len(registry.load(task, '', 'train')) == 3


@pytest.mark.parametrize('kind', ['roles', 'coreference'])
def test_columns_are_in_no_data_set(kind):
  with pytest.raises(ValueError, match='own.train: found hf:a:train, expected'):
    kinds.own_task(kind=kind, source='hf:a', train='train', dev='dev')


def test_lists_of_binary_tables(tmp_path):
  def write_one(name, **columns):
    parquet.write_table(pa.table(columns), tmp_path / name)
    return str(tmp_path / name)

  of_tags = write_one(
    'tags.parquet',
    tokens=[['A', 'B'], ['C']],
    ner_tags=[['B-PER', 'O'], ['O']],
    words=[['D'], ['E']],
  )
  task = kinds.own_task(
    kind='tagging',
    train=of_tags,
    dev=of_tags,
    text=('tokens',),
    label='ner_tags',
  )
  (first, _) = registry.load(task, '', 'dev')
  assert first.words == ('A', 'B') and first.tags == ('B-PER', 'O')
  of_choices = write_one(
    'choices.parquet', context=['A'], choices=[['B', 'C', 'D']], label=[2]
  )
  task = kinds.own_task(kind='choice', train=of_choices, dev=of_choices)
  (found,) = registry.load(task, '', 'dev')
  assert found.choices == ('B', 'C', 'D') and found.label == 2
  of_spans = write_one(
    'spans.parquet',
    question=['Who?', 'Where?'],
    context=['It was Ann.', 'Nowhere.'],
    answers=[
      {'text': ['Ann'], 'answer_start': [7]},
      {'text': [], 'answer_start': []},
    ],
  )
  task = kinds.own_task(kind='span', train=of_spans, dev=of_spans)
  found = registry.load(task, '', 'dev')
  assert [example.answers for example in found] == [(('Ann', 7),), ()]


@pytest.mark.parametrize(
  ('columns', 'message'),
  [
    ({'text': ['A.', None]}, r"row 2: found null in the field 'sentence', exp"),
    (
      {'text': [3, 4]},
      "row 1: found int in the field 'sentence', expected text",
    ),
    (
      {'other': ['A.', 'B.']},
      r"row 1: found the fields \['label', 'other'\], ex",
    ),
    ({'label': [0, None]}, "row 2, field 'label': found no label, expected"),
    ({'text': ['A.', ' ']}, "row 2, field 'sentence': found an empty text, ex"),
    (
      {'label': [0.5, 1.5]},
      "row 1, field 'label': found the label 0.5, expected text, a whole",
    ),
  ],
)
def test_wrong_binary_tables_are_named(columns, message, tmp_path):
  table = {'sentence': ['A.', 'B.'], 'label': [0, 1]} | {
    name.replace('text', 'sentence'): each for name, each in columns.items()
  }
  if 'other' in columns:
    table.pop('sentence')
  path = tmp_path / 'train.parquet'
  parquet.write_table(pa.table(table), path)
  with pytest.raises(ValueError, match=f'{path}, {message}'):
    task = kinds.own_task(
      kind='classification', train=str(path), dev=str(path), labels=('0', '1')
    )
    registry.load(task, '', 'train')
