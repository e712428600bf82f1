"""Topics of news: the real files, and wrong ones."""

import collections

import pytest

from data.tasks import examples, registry


def test_ag_news(sesame_data, capsys):
  task = registry.find('ag_news')
  source = str(sesame_data / 'news_topics')
  found = registry.load(task, source, 'test')
  assert not capsys.readouterr().err
  counts = collections.Counter(example.label for example in found)
  assert counts == dict.fromkeys(task.labels, 1900)  # 7,600 rows
  assert found[0].label == 'Business'
  assert found[0].texts[0].startswith('Fears for T N pension after talks Uni')
  # A second\team: the backslash is a line break.
  assert 'A second team of rocketeers' in found[1].texts[0]
  # The release has no dev set.
  assert registry.load(task, source, 'dev') == found
  assert not registry.has_split(task, source, 'train')


def test_a_dev_set_of_ones_own_comes_first(load):
  row = '"{}","A ""b"", c","D"\n'
  texts = {'ag_news/test.csv': row.format(4), 'ag_news/dev.csv': row.format(1)}
  (dev,) = load('ag_news', 'dev', texts)
  (test,) = load('ag_news', 'test', texts)
  assert dev == examples.TextExample('0', ('A "b", c D',), 'World')
  assert test.label == 'Sci/Tech'
  for bad, message in (
    ('"5","A","B"\n', "line 1: found the topic '5', expected a number from 1 "),
    ('"1","A"\n', 'line 1: found 2 columns, expected 3 with commas'),
    ('"1","A","B\n', 'line 1: found a quotation mark'),
    ('"1","",""\n', 'line 1: found an empty text, expected words'),
  ):
    with pytest.raises(ValueError, match=f'train.csv, {message}'):
      load('ag_news', 'train', {'ag_news/train.csv': bad})


@pytest.mark.parametrize('split', ['dev', 'test'])
def test_thucnews(sesame_data, capsys, split):
  task = registry.find('thucnews')
  source = sesame_data / 'news_topics'
  found = registry.load(task, str(source), split)
  assert not capsys.readouterr().err
  counts = collections.Counter(example.label for example in found)
  assert counts == dict.fromkeys(task.labels, 1000)  # 10,000 rows
  names = (source / 'thucnews/class.txt').read_text().split()
  assert task.labels == tuple(names)
  first = {
    'dev': ('体验2D巅峰 倚天屠龙记十大创新概览', 'game'),
    'test': ('词汇阅读是关键 08年考研暑期英语复习全指南', 'education'),
  }[split]
  assert (found[0].texts[0], found[0].label) == first


def test_wrong_lines_of_thucnews_are_named(load):
  (found,) = load('thucnews', 'test', {'test.txt': '中国\n'})
  assert found == examples.TextExample('0', ('中国',), None)
  for bad, message in (
    (
      '中\t1\n国\t10\n',
      "line 2: found the topic '10', expected a number from 0",
    ),
    ('中\t1\n国 2\n', 'line 2: found 1 columns, expected 2 with a tab'),
    ('中\n', 'line 1: found no label, expected one'),
    ('\t1\n', 'line 1: found an empty text, expected words'),
  ):
    with pytest.raises(ValueError, match=f'train.txt, {message}'):
      load('thucnews', 'train', {'train.txt': bad})
