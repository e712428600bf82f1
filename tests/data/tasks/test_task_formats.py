"""Hand-made files in the official formats of the sets that are not here."""

import gzip
import json

import pytest
from etils import epath

from data.tasks import conll, examples, registry, sst5, story_cloze


@pytest.fixture
def load(tmp_path):
  """Returns a function (task, split, {file: text}) -> examples."""

  def read(name, split, texts):
    for file, text in texts.items():
      path = tmp_path / file
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(text.encode())
    return registry.load(registry.find(name), str(tmp_path), split)

  return read


def table(*rows):
  return ''.join('\t'.join(row.split('|')) + '\n' for row in rows)


def test_qqp_drops_broken_rows_in_training_and_counts_them(load, capsys):
  train = table(
    'id|qid1|qid2|question1|question2|is_duplicate',
    '133273|213221|213222|How is "life" in 1800\'s?|Who?|0',
    '402555|536040|536041|How do I',
    '360472|364011|490273|What causes stool to be yellow?||1',
  )
  found = load('qqp', 'train', {'QQP/train.tsv': train})
  assert found == [
    examples.TextExample('133273', ('How is "life" in 1800\'s?', 'Who?'), '0'),
    examples.TextExample(
      '360472', ('What causes stool to be yellow?', ''), '1'
    ),
  ]
  assert '1 damaged rows of fewer than 6 columns dropped' in (
    capsys.readouterr().err
  )
  test = table('id|question1|question2', '0|Why?|What?', '1|Who?')
  with pytest.raises(ValueError, match='test.tsv, line 3: found 2 columns'):
    load('qqp', 'test', {'QQP/test.tsv': test})


PARSES = 'sentence1_binary_parse|sentence2_binary_parse|sentence1_parse|'
PARSES += 'sentence2_parse|sentence1|sentence2'


def test_mnli_has_other_columns_in_every_file(load):
  ids = 'index|promptID|pairID|genre|'
  five = '|label1|label2|label3|label4|label5|gold_label'
  files = {
    'MNLI/train.tsv': table(
      f'{ids}{PARSES}|label1|gold_label',
      '0|3|3n|fiction|(|(|(ROOT|(ROOT|It "is.|It isn\'t.|neutral|neutral',
    ),
    'MNLI/dev_matched.tsv': table(
      f'{ids}{PARSES}{five}',
      '7|6|6c|slate|(|(|(|(|One.|Two.|neutral|||||contradiction',
    ),
    'MNLI/dev_mismatched.tsv': table(
      f'{ids}{PARSES}{five}',
      '8|6|6e|oup|(|(|(|(|Three.|Four.|entailment|||||entailment',
    ),
    'MNLI/test_mismatched.tsv': table(
      f'{ids}{PARSES}', '9|3|3n|nine|(|(|(|(|Five.|Six.'
    ),
    'diagnostic/diagnostic-full.tsv': table(
      'Lexical Semantics|Predicate-Argument Structure|Logic|Knowledge|Domain|'
      'Premise|Hypothesis|Label',
      '||Negation||Artificial|The cat sat.|The cat did not sit.|contradiction',
    ),
  }
  found = {
    split: load('mnli', split, files)
    for split in (
      'train',
      'dev',
      'dev_mismatched',
      'test_mismatched',
      'diagnostic',
    )
  }
  assert found == {
    'train': [examples.TextExample('0', ('It "is.', "It isn't."), 'neutral')],
    'dev': [examples.TextExample('7', ('One.', 'Two.'), 'contradiction')],
    'dev_mismatched': [
      examples.TextExample('8', ('Three.', 'Four.'), 'entailment')
    ],
    'test_mismatched': [examples.TextExample('9', ('Five.', 'Six.'), None)],
    'diagnostic': [
      examples.TextExample(
        '0', ('The cat sat.', 'The cat did not sit.'), 'contradiction'
      )
    ],
  }


def test_multinlis_own_files_drop_what_has_no_majority(load, capsys):
  rows = table(
    f'gold_label|{PARSES}|promptID|pairID|genre|label1|label2|label3',
    'neutral|(|(|(|(|A man.|A boy.|31193|31193n|government|neutral',
    '-|(|(|(|(|A man.|A dog.|31193|31193c|government|neutral|entailment|',
  )
  found = load('mnli', 'dev', {'multinli_1.0_dev_matched.txt': rows})
  assert found == [
    examples.TextExample('31193n', ('A man.', 'A boy.'), 'neutral')
  ]
  assert '1 pairs without a majority label dropped' in capsys.readouterr().err


def test_snli_in_both_formats(load, capsys):
  records = [
    {'gold_label': label, 'sentence1': 'A ü.', 'sentence2': two, 'pairID': pair}
    for label, two, pair in (
      ('neutral', 'B.', '3.jpg#4r1n'),
      ('-', 'C.', '3.jpg#4r1c'),
      ('entailment', '', '3.jpg#4r1e'),
    )
  ]
  lines = ''.join(json.dumps(record) + '\n' for record in records)
  header = f'gold_label|{PARSES}|captionID|pairID|label1|label2|label3'
  rows = table(
    header,
    *(
      f'{r["gold_label"]}|(|(|(|(|{r["sentence1"]}|{r["sentence2"]}|3.jpg#4|'
      f'{r["pairID"]}|{r["gold_label"]}'
      for r in records
    ),
  )
  expected = [
    examples.TextExample('3.jpg#4r1n', ('A ü.', 'B.'), 'neutral'),
    examples.TextExample('3.jpg#4r1e', ('A ü.', ''), 'entailment'),
  ]
  assert load('snli', 'train', {'snli_1.0_train.jsonl': lines}) == expected
  assert load('snli', 'dev', {'snli_1.0/snli_1.0_dev.txt': rows}) == expected
  told = capsys.readouterr().err
  assert told.count('1 pairs without a majority label dropped') == 2


def test_scitails_own_formats(load):
  rows = table('A "b|C.|entails', 'D.|E.|neutral')
  lines = ''.join(
    json.dumps({'gold_label': label, 'sentence1': one, 'sentence2': two}) + '\n'
    for one, two, label in (
      ('A "b', 'C.', 'entailment'),
      ('D.', 'E.', 'neutral'),
    )
  )
  expected = [
    examples.TextExample('0', ('A "b', 'C.'), 'entails'),
    examples.TextExample('1', ('D.', 'E.'), 'neutral'),
  ]
  root = 'SciTailV1.1'
  files = {
    f'{root}/tsv_format/scitail_1.0_train.tsv': rows,
    f'{root}/snli_format/scitail_1.0_dev.txt': lines,
  }
  assert load('scitail', 'train', files) == expected
  assert load('scitail', 'dev', files) == expected


def test_xnli_has_languages_and_trains_on_mnli(load):
  files = {
    'XNLI-1.0/xnli.dev.tsv': table(
      f'language|gold_label|{PARSES}|promptID|pairID|genre|match',
      'ar|neutral|||||نعم.|لا.|1|1|facetoface|True',
      'de|entailment|||||Und er "sagte.|Er.|1|1|facetoface|True',
    ),
    'MNLI/train.tsv': table(
      f'index|promptID|pairID|genre|{PARSES}|label1|gold_label',
      '0|3|3n|fiction|(|(|(|(|One.|Two.|neutral|neutral',
    ),
  }
  assert load('xnli', 'dev', files) == [
    examples.TextExample('ar-1', ('نعم.', 'لا.'), 'neutral', 'ar'),
    examples.TextExample('de-1', ('Und er "sagte.', 'Er.'), 'entailment', 'de'),
  ]
  assert load('xnli', 'train', files) == [
    examples.TextExample('0', ('One.', 'Two.'), 'neutral', 'en')
  ]
  translated = table('premise|hypo|label', '我 。|你 。|contradictory')
  folder = 'XNLI-MT-1.0/multinli'
  (found,) = load(
    'xnli', 'train', {f'{folder}/multinli.train.zh.tsv': translated} | files
  )[:1]
  assert found.group == 'en'  # English first


def test_xnlis_translations(load):
  rows = table('premise|hypo|label', '我 。|你 。|contradictory')
  assert load('xnli', 'train', {'xnli/multinli.train.zh.tsv': rows}) == [
    examples.TextExample('0', ('我 。', '你 。'), 'contradiction', 'zh')
  ]


def test_race_is_a_folder_of_articles(load):
  def article(key, answers):
    return json.dumps(
      {
        'id': key,
        'article': f'Text of {key}.',
        'questions': [f'Question {i} _ .' for i in range(len(answers))],
        'options': [['w', 'x', 'y', 'z']] * len(answers),
        'answers': answers,
      }
    )

  files = {
    'RACE/dev/high/10.txt': article('high10.txt', ['A']),
    'RACE/dev/high/9.txt': article('high9.txt', ['D', 'B']),
    'RACE/dev/middle/100.txt': article('middle100.txt', ['C']),
  }
  found = load('race', 'dev', files)
  assert [(e.id, e.group, e.label) for e in found] == [
    ('middle100.txt-0', 'middle', 2),
    ('high9.txt-0', 'high', 3),
    ('high9.txt-1', 'high', 1),
    ('high10.txt-0', 'high', 0),
  ]
  assert found[2] == examples.ChoiceExample(
    'high9.txt-1',
    'Text of high9.txt.',
    'Question 1 _ .',
    ('w', 'x', 'y', 'z'),
    1,
    'high',
  )
  bad = json.loads(article('high9.txt', ['D', 'E']))
  with pytest.raises(
    ValueError, match=r"9.txt, question 2: found the answer 'E', expected one"
  ):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  bad['answers'] = ['A']
  with pytest.raises(ValueError, match='found 2 questions, 2 options and 1 an'):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  del bad['answers']
  with pytest.raises(ValueError, match=r"9.txt: found the fields \['article'"):
    load('race', 'dev', {'RACE/dev/high/9.txt': json.dumps(bad)})
  (found,) = load('race', 'test', {'RACE/test/high/1.txt': article('1', ['A'])})
  assert found.label == 0
  with pytest.raises(ValueError, match='train: found no article, expected fil'):
    load('race', 'train', {'RACE/train/empty': ''})


STORY = 'InputStoryid,InputSentence1,InputSentence2,InputSentence3,'
STORY += 'InputSentence4,RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2'
LABELLED = 'cloze_test_val__spring2016 - cloze_test_ALL_val.csv'
UNTOLD = 'cloze_test_test__spring2016 - cloze_test_ALL_test.csv'


def test_story_cloze_is_split_as_in_the_release(load):
  story = '"Rick, 5, grew up.",He fell.,"He said ""ow"".",He rose.,Good.,Bad.'
  rows = [f'{STORY},AnswerRightEnding']
  rows += [f'id{i},{story},{i % 2 + 1}' for i in range(1871)]
  files = {LABELLED: '\r\n'.join(rows)}
  train = load('story_cloze', 'train', files)
  dev = load('story_cloze', 'dev', files)
  assert (len(train), len(dev)) == (1497, 374)
  assert {e.id for e in train + dev} == {f'id{i}' for i in range(1871)}
  number = int(dev[0].id[2:])
  assert dev[0] == examples.ChoiceExample(
    f'id{number}',
    'Rick, 5, grew up. He fell. He said "ow". He rose.',
    '',
    ('Good.', 'Bad.'),
    number % 2,
  )
  test = load('story_cloze', 'test', {UNTOLD: f'{STORY}\na,{story}\n'})
  assert [(e.id, e.label) for e in test] == [('a', None)]
  bad = '\n'.join([rows[0], f'a,{story},3'])
  with pytest.raises(ValueError, match="line 2: found the right ending '3'"):
    load('story_cloze', 'train', {LABELLED: bad})
  bad = '\n'.join([rows[0], f'a,{story},1'.replace('He fell.', '')])
  with pytest.raises(ValueError, match='found an empty InputSentence2, exp'):
    load('story_cloze', 'train', {LABELLED: bad})


def test_story_clozes_split_is_that_of_scikit_learn():
  selection = pytest.importorskip('sklearn.model_selection')
  for count in (1871, 20):
    rows = list(range(count))
    train, dev = story_cloze.split_rows(count)
    expected = selection.train_test_split(
      rows, test_size=len(dev), random_state=3535999445
    )
    assert [train, dev] == expected


SWAG = 'sent1,sent2,gold-source,ending0,ending1,ending2,ending3'


def test_swag(load):
  train = (
    f',video-id,fold-ind,startphrase,{SWAG},label\n'
    '0,lsmdc1,18313,They lower. She,They lower.,She,gold,"pats, then",turns '
    'with two.,walks.,wheels.,2\n'
  )
  test = (
    f',video-id,fold-ind,startphrase,{SWAG}\n'
    '0,anetv,1,A. B,A.,B,gen,"a\nb",c,d,e\n'
  )
  files = {'train.csv': train, 'test.csv': test}
  assert load('swag', 'train', files) == [
    examples.ChoiceExample(
      '0',
      'They lower.',
      'She',
      ('pats, then', 'turns with two.', 'walks.', 'wheels.'),
      2,
    )
  ]
  (found,) = load('swag', 'test', files)
  assert (found.choices[0], found.label) == ('a\nb', None)
  with pytest.raises(ValueError, match="line 2: found the label '4', expected"):
    load('swag', 'train', {'train.csv': train.replace(',2\n', ',4\n')})
  with pytest.raises(ValueError, match='line 2: found 13 columns, expected 12'):
    load('swag', 'train', {'train.csv': train.replace(',2\n', ',4,5\n')})
  with pytest.raises(ValueError, match='found wrong quoting'):
    load('swag', 'train', {'train.csv': train.replace('"pats', '"pa"ts')})
  with pytest.raises(ValueError, match=r"expected among them \['label'\]"):
    load('swag', 'dev', {'val.csv': test})


def squad(*questions, context='The Norman dynasty  ruled.', **more):
  paragraph = {'context': context, 'qas': list(questions)}
  return json.dumps(
    {'data': [{'title': 'T', 'paragraphs': [paragraph]}]} | more
  )


def question(key, *answers, **more):
  answers = [{'text': text, 'answer_start': start} for text, start in answers]
  return {'id': key, 'question': f' {key}? ', 'answers': answers} | more


def test_squads_versions_are_told_by_the_questions(load):
  text = squad(
    question('a', ('Norman', 4), ('Norman dynasty', 4), is_impossible=False),
    question('b', is_impossible=True, plausible_answers=[{'text': 'x'}]),
    version='of mine',
  )
  found = load('squad2', 'train', {'train-v2.0.json': text})
  context = 'The Norman dynasty  ruled.'
  assert found == [
    examples.SpanExample(
      'a', 'a?', context, (('Norman', 4), ('Norman dynasty', 4))
    ),
    examples.SpanExample('b', 'b?', context, ()),
  ]
  untold = question('a')
  del untold['answers']
  (found,) = load('squad1', 'test', {'squad/test-v1.1.json': squad(untold)})
  assert (found.is_labelled, found.answers) == (False, ())
  with pytest.raises(ValueError, match="question 'a': found no label, expect"):
    load('squad1', 'dev', {'squad/dev-v1.1.json': squad(untold)})


@pytest.mark.parametrize(
  'text, message',
  [
    (
      squad(question('a', ('Roman', 4))),
      "question 'a': found 'Norma' in the context at character 4, expected the "
      "answer 'Roman'",
    ),
    (squad(question('a', ('', 4))), "question 'a': found the answer '' at 4"),
    (squad(question('a', ('x', -1))), "question 'a': found the answer 'x' at"),
    (
      squad(question('a', ('The', 0)), question('a', ('The', 0))),
      "question 'a': found the id 'a' of ",
    ),
    (
      squad(question('a', ('The', '0'))),
      "question 'a': found answer_start '0', expected the number",
    ),
    (
      squad(question('a', ('The', 0), is_impossible=True)),
      'found 1 answers of an impossible question, expected none',
    ),
    (squad(question('a', question=' ')), "'a': found an empty question, expec"),
    (squad(question('a', answers={})), "'a': found dict as answers, expected"),
    (squad({'id': 'a'}), "data 0, paragraph 0: found the fields ['id'], exp"),
    (squad(question('a'), context=' '), "'a': found an empty context, expect"),
    ('{"data": [{}]}', 'data 0: found the fields [], expected among them'),
    ('{"data": [],\n }', 'dev-v1.1.json, line 2: not JSON'),
    ('[]', 'dev-v1.1.json: found list, expected an object with the fields'),
    ('{"data": []}', 'dev-v1.1.json: found no example, expected those of the'),
  ],
)
def test_damaged_questions_are_named(load, text, message):
  with pytest.raises(ValueError) as error:
    load('squad1', 'dev', {'dev-v1.1.json': text})
  assert message in str(error.value)


def test_triviaqa_as_its_converter_writes_it(load, capsys):
  text = squad(
    question('q--doc.txt', ('norman dynasty', 4)), question('r--doc.txt')
  )
  (found,) = load('triviaqa', 'train', {'triviaqa/wikipedia-train.json': text})
  assert found.answers == (('Norman dynasty', 4),)
  assert '1 questions without an answer dropped' in capsys.readouterr().err
  wrong = squad(question('q', ('roman', 4)))
  with pytest.raises(
    ValueError, match="question 'q': found 'Norma' in the con"
  ):
    load('triviaqa', 'dev', {'triviaqa/dev.json': wrong})


CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC
Irish JJ I-NP B-MISC
call NN I-NP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- O O

BRUSSELS NNP I-NP I-LOC
Nato NNP I-NP I-ORG"""


def test_conll_is_read_as_iob2(load):
  found = load('conll2003', 'train', {'eng.train': CONLL})
  assert [e.tags for e in found] == [
    ('B-ORG', 'O', 'B-MISC', 'B-MISC', 'O'),
    ('B-PER', 'I-PER'),
    ('B-LOC', 'B-ORG'),
  ]
  assert [e.document for e in found] == [1, 1, 2]
  assert [e.id for e in found] == ['0', '1', '2']
  assert found[1] == examples.TaggedExample(
    '1',
    ('Peter', 'Blackburn'),
    ('B-PER', 'I-PER'),
    1,
    (('NNP', 'I-NP'), ('NNP', 'I-NP')),
  )
  crlf = CONLL.replace('\n', '\r\n')
  assert load('conll2003', 'dev', {'eng.testa': crlf}) == found
  for bad, message in (
    ('call NN O', 'line 7: found 3 columns, expected 4, the word first'),
    ('call NN I-NP X-ORG', "line 3: found the tag 'X-ORG', expected one of"),
  ):
    with pytest.raises(ValueError, match=message):
      text = CONLL.replace('call NN I-NP O', bad)
      load('conll2003', 'train', {'eng.train': text})


def test_iob2_stays():
  tags = ('B-PER', 'I-PER', 'B-PER', 'O', 'B-LOC', 'I-LOC')
  assert conll.to_iob2(tags) == tags
  mixed = ('I-PER', 'I-LOC', 'O', 'I-LOC', 'B-LOC', 'I-LOC')
  assert conll.to_iob2(mixed) == (
    'B-PER',
    'B-LOC',
    'O',
    'B-LOC',
    'B-LOC',
    'I-LOC',
  )


def test_panx_as_released(load):
  text = 'en:Sioux\tB-ORG\nen:Falls\tI-ORG\n\nen::\tO\n\n'
  found = load('panx_en', 'dev', {'panx/en/dev': text})
  assert [e.words for e in found] == [('Sioux', 'Falls'), (':',)]
  with pytest.raises(ValueError, match='line 2: found 1 columns, expected 2'):
    load('panx_en', 'train', {'train-en.tsv': 'a\tO\nb\n'})
  with pytest.raises(
    ValueError, match='line 2: found 1 columns, expected 2 as'
  ):
    load('panx_en', 'test', {'test-en.tsv': 'a\tO\nb\n'})
  with pytest.raises(ValueError, match='line 1: found 1 columns, expected 2'):
    load('panx_en', 'train', {'train-en.tsv': 'a O\nb O\n'})


@pytest.mark.parametrize(
  'tree',
  [
    'no tree',
    '(2 a',
    '(2 a))',
    '(2 a) (3 b)',
    '((2 a))',
    '()',
    '(2 )',
    '(2 (3 ))',
    ')',
  ],
)
def test_what_is_no_tree_is_refused(tree):
  with pytest.raises(ValueError, match=r'f.txt, line 7: found no tree at char'):
    sst5.parse('f.txt, line 7', tree)


def test_trees(load):
  tree = '(3 (2 (1 -LRB-) (2 A\\/B)) (4 (2 *) (4 good)))'
  assert sst5.parse('f', tree) == [
    ('3', '( A/B * good'),
    ('2', '( A/B'),
    ('1', '('),
    ('2', 'A/B'),
    ('4', '* good'),
    ('2', '*'),
    ('4', 'good'),
  ]
  files = {'trees/train.txt': f'{tree}\n', 'trees/dev.txt': '(5 bad)\n'}
  assert len(load('sst5_phrases', 'train', files)) == 7
  with pytest.raises(ValueError, match=r"dev.txt, line 1: found the label '5'"):
    load('sst5', 'dev', files)


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
