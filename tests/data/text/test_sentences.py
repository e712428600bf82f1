"""Running text to sentences."""

import time

import pytest

from data.text import sentences


def test_running_text_becomes_sentences():
  text = (
    'Mr. Smith went to\nWashington. He  said: "No."\n\n'
    'A heading\n \nThen he left!\tWhy? Dr. No knew.\n\n\n'
  )
  assert sentences.split_sentences(text) == [
    'Mr. Smith went to Washington.',
    'He said: "No."',
    'A heading',
    'Then he left!',
    'Why?',
    'Dr. No knew.',
  ]
  assert sentences.split_sentences(' \n\n\t') == []
  assert sentences.split_lines('One  line. Two.\n\n Next\tone \n') == [
    'One line. Two.',
    'Next one',
  ]


def test_cjk_sentences():
  assert sentences.split_sentences('我们去。他问：“来吗？”好！！ Yes. No.') == [
    '我们去。',
    '他问：“来吗？”',
    '好！！',
    'Yes.',
    'No.',
  ]


@pytest.mark.slow
def test_no_text_is_lost_and_time_is_linear(sesame_data):
  novel = sorted((sesame_data / 'novels').glob('*.txt'))[7]
  text = novel.read_text('utf-8-sig')
  hard = ['a.b' * 90_000, '.' * 300_000, '. ' * 90_000, '!?)' * 60_000]
  hard += ['。' * 300_000, 'word ' * 90_000, ').' * 60_000]
  for sample in (text, *hard):
    start = time.process_time()
    found = sentences.split_sentences(sample)
    seconds = time.process_time() - start
    assert ''.join(found).replace(' ', '') == ''.join(sample.split())
    assert max(map(len, found)) <= sentences.MAX_SPAN
    assert seconds < 10, (sample[:10], seconds)
