"""SNLI, SciTail and XNLI as their releases write them."""

import json

from task_tables import PARSES, table

from data.tasks import examples


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
