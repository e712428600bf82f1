"""Tagged sentences in columns."""

import pytest

from data.tasks import examples

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
