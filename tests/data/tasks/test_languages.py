"""Tasks in several languages: their declarations, files and labels."""

import collections

import pytest
from task_tables import PARSES, table

from data.tasks import examples, registry

SEVERAL = ('ag_news', 'conll2003', 'panx_en', 'panx_zh', 'ud_pos', 'xnli')
PANX = 'ar de es fi fr hi ja ko nl ru sw tr zh'.split()  # hi and sw are short


@pytest.mark.parametrize('name', SEVERAL)
def test_declarations_are_whole(name):
  task = registry.find(name)
  assert task.language and task.languages
  for language, other in task.languages.items():
    assert set(other.files) & {'dev', 'test'}
    assert (other.kind, other.metrics) == (task.kind, task.metrics)
    # A head of the source's labels answers, and submissions are alike.
    assert set(other.labels) <= set(task.labels)
    assert other.submission == task.submission
    assert other.num_texts == task.num_texts
    own = registry.in_language(task, f'dev@{language}')
    assert own == (other, 'dev')


def test_only_these_have_languages():
  assert SEVERAL == tuple(
    sorted(name for name, task in registry.TASKS.items() if task.languages)
  )
  rte = registry.find('rte')
  with pytest.raises(
    ValueError,
    match=r"rte: found the language 'de' in 'dev@de', expected one of \[\]",
  ):
    registry.load(rte, '/nowhere', 'dev@de')


def test_a_file_tells_its_language():
  for name, file, split in (
    ('xnli', 'dev-de.tsv', 'dev@de'),
    ('xnli', 'xnli.dev.tsv', 'dev'),  # all languages
    ('panx_en', 'test-zh.tsv', 'test@zh'),
    ('ud_pos', 'ru_pud-ud-test.conllu', 'test@ru'),
    ('conll2003', 'esp.testa', 'dev@es'),
    ('conll2003', 'eng.testa', 'dev'),
    ('ag_news', 'train.txt', 'train@zh'),
    ('rte', 'dev-de.tsv', None),
  ):
    assert registry.split_of(registry.find(name), file) == split


def test_xnli_by_language(load):
  files = {
    'XNLI-1.0/xnli.dev.tsv': table(
      f'language|gold_label|{PARSES}|promptID|pairID|genre|match',
      'ar|neutral|||||نعم.|لا.|1|1|facetoface|True',
      'de|entailment|||||Und er "sagte.|Er.|1|1|facetoface|True',
    ),
    'XNLI-1.0/dev-fr.tsv': 'Oui "a.\tNon.\tcontradiction\n',
    'XNLI-1.0/test-fr.tsv': 'Oui.\tNon.\n',
    'XNLI-MT-1.0/multinli/multinli.train.zh.tsv': table(
      'premise|hypo|label', '我 。|你 。|contradictory'
    ),
  }
  german = examples.TextExample('de-1', ('Und er "sagte.', 'Er.'), 'entailment')
  assert load('xnli', 'dev@de', files) == [german]
  # The table of all languages comes before a language's own file.
  with pytest.raises(ValueError, match=r'xnli\.dev\.tsv: found no example'):
    load('xnli', 'dev@fr', files)
  assert load('xnli', 'test@fr', files) == [
    examples.TextExample('0', ('Oui.', 'Non.'), None)
  ]
  assert load('xnli_zh', 'train', files) == [
    examples.TextExample('0', ('我 。', '你 。'), 'contradiction')
  ]


def test_xtremes_files_of_xnli(load):
  files = {'xnli/dev-fr.tsv': 'Oui "a.\tNon.\tcontradiction\n'}
  french = examples.TextExample('0', ('Oui "a.', 'Non.'), 'contradiction')
  assert load('xnli', 'dev@fr', files) == [french]
  for text, message in (
    ('Oui.\tNon.\n', 'line 1: found no label, expected one'),
    ('Oui.\tNon.\tvrai\n', "line 1: found the label 'vrai', expected one of"),
    ('Oui.\tNon.\tneutral\nOui.\n', 'line 2: found 1 columns, expected 3'),
  ):
    with pytest.raises(ValueError, match=rf'dev-fr\.tsv, {message}'):
      load('xnli', 'dev@fr', {'xnli/dev-fr.tsv': text})


def test_shared_tasks_have_columns_of_their_own(load):
  files = {
    'conll2002/esp.testa': 'La B-LOC\nCoruña I-LOC\n\nEFE B-ORG\n',
    'conll2002/ned.testb': '-DOCSTART- -DOCSTART- O\nJan N B-PER\nzei V O\n',
    'conll2003/deu.testa': (
      '-DOCSTART- -X- -X- -X- O\n\nEU EU NN I-NC I-ORG\nist sein V I-VC O\n'
    ),
  }
  spanish, _ = load('conll2003', 'dev@es', files)
  assert (spanish.words, spanish.tags) == (('La', 'Coruña'), ('B-LOC', 'I-LOC'))
  (dutch,) = load('conll2003', 'test@nl', files)
  assert (dutch.words, dutch.tags) == (('Jan', 'zei'), ('B-PER', 'O'))
  (german,) = load('conll2003', 'dev@de', files)
  assert german.tags == ('B-ORG', 'O')
  assert german.columns == (('EU', 'NN', 'I-NC'), ('sein', 'V', 'I-VC'))


def test_topics_in_common(load):
  text = ''.join(f'标题{number}\t{number}\n' for number in range(10))
  found = load('ag_news', 'dev@zh', {'thucnews/dev.txt': text})
  assert [(each.texts[0], each.label) for each in found] == [
    ('标题0', 'Business'),  # finance
    ('标题2', 'Business'),  # stocks
    ('标题4', 'Sci/Tech'),
    ('标题6', 'World'),  # politics
    ('标题7', 'Sports'),
  ]


@pytest.mark.slow
def test_the_real_sets(sesame_data):
  def sizes(name, splits, folder=sesame_data):
    task = registry.find(name)
    return {
      split: len(registry.load(task, str(folder), split)) for split in splits
    }

  assert set(sizes('panx_en', [f'dev@{x}' for x in PANX]).values()) == {
    10000,
    1000,
  }
  assert sizes('panx_en', ['dev@hi', 'dev@sw', 'test@zh']) == {
    'dev@hi': 1000,
    'dev@sw': 1000,
    'test@zh': 10000,
  }
  xnli = registry.find('xnli')
  for language in xnli.languages:
    found = registry.load(xnli, str(sesame_data), f'dev@{language}')
    labels = collections.Counter(each.label for each in found)
    assert labels == dict.fromkeys(xnli.labels, 830)
  news = sizes('ag_news', ['dev@zh', 'test@zh'], sesame_data / 'news_topics')
  assert news == {'dev@zh': 5000, 'test@zh': 5000}  # of 10 topics, 5
