"""Minimal pairs: published files, shares, and pairs that are refused."""

import csv
import json
import math
import pydoc_data.topics

import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train import minimal_pairs as door
from train.language import minimal_pairs, published_pairs
from train.language.minimal_pairs import MinimalPair


def test_blimp_is_read_and_its_published_rows(sesame_data):
  folder = sesame_data / 'blimp'
  pairs = minimal_pairs.read(str(folder))
  groups = {pair.group for pair in pairs}
  assert len(pairs) == 67_000 and len(groups) == 67
  assert len({pair.family for pair in pairs}) >= 12
  others = published_pairs.beside(groups, 'sum')
  assert list(others) == list(published_pairs.BESIDE)
  means = [100 * np.mean(list(each.values())) for each in others.values()]
  np.testing.assert_allclose(
    means, [61.24, 69.81, 69.63, 83.02, 63.52, 71.99], atol=0.006
  )
  assert all(each.keys() == groups for each in others.values())
  some = minimal_pairs.limited(pairs, 10)
  assert len(some) == 670 and some[0] == pairs[0]


def test_zorro_is_read(sesame_data):
  pairs = minimal_pairs.read(str(sesame_data / 'zorro'))
  assert len(pairs) == 23 * 2_000
  first = pairs[0]
  assert first.group == 'agreement_determiner_noun-across_1_adjective'
  assert first.family == 'agreement_determiner_noun'
  assert first.good != first.bad
  assert first.place.endswith('.txt, line 1')
  groups = {pair.group for pair in pairs}
  hidden = published_pairs.beside(groups, 'sum')
  means = {k: 100 * np.mean(list(v.values())) for k, v in hidden.items()}
  assert means['BabyBERTa, Wikipedia-1'] == pytest.approx(73.2, abs=0.05)
  whole = published_pairs.beside(groups, 'holistic')
  assert whole.keys() == hidden.keys() and whole != hidden
  assert published_pairs.beside(groups - {first.group}, 'sum') == {}


def tokenizer_of(kind):
  return tokenization.train(
    list(pydoc_data.topics.topics.values())[:20],
    tokenization.parse_training(f'train:{kind}:400'),
  )


def pairs_of(*groups):
  return [MinimalPair('a', 'b', group, group[:1], 'x') for group in groups]


def test_a_tie_is_wrong_and_counted():
  pairs = pairs_of('g1', 'g1', 'g1', 'g1', 'g2', 'h')
  good = np.array([1.0, 2, 0, 3, 5, 1])
  bad = np.array([0.0, 2, 1, 0, 0, 1])
  found = minimal_pairs.figures(pairs, good, bad)
  assert found['groups'] == {'g1': 0.5, 'g2': 1.0, 'h': 0.0}
  assert found['families'] == {'g': 3 / 5, 'h': 0.0}
  assert found['mean'] == 0.5 and found['share'] == 0.5
  assert found['ties'] == 2 and found['pairs'] == 6
  low, high = found['interval']
  assert 1 / 3 <= low < 0.5 < high <= 2 / 3


def test_mcnemar_is_exact():
  first = np.array([True] * 9 + [False] * 4 + [True] * 5)
  second = np.array([False] * 9 + [True] * 4 + [True] * 5)
  found = minimal_pairs.mcnemar(first, second)
  tail = sum(math.comb(13, k) for k in range(5)) / 2**13
  assert found['only_first'] == 9 and found['only_second'] == 4
  assert found['p'] == pytest.approx(2 * tail)
  assert minimal_pairs.mcnemar(first, first)['p'] == 1


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('a.tsv', 'good\tbad\n\nA\n', 'a.tsv, line 3: expected 2 columns'),
    ('a.tsv', 'good\tworse\nA\tB\n', 'a.tsv, line 1: no column bad among'),
    ('a.tsv', 'good\tbad\n', 'a.tsv: holds no pair'),
    ('a.tsv', 'good\tbad\n\nA\tA\n', "a.tsv, line 3: both sentences are 'A'"),
    ('a.tsv', 'good\tbad\n\t\n', 'a.tsv, line 2: a sentence is empty'),
    (
      'a.jsonl',
      '\n{"good": "", "bad": "A"}',
      'a.jsonl, line 2: a sentence is e',
    ),
    ('d/x.txt', '', 'x.txt: is empty; expected pairs of lines'),
    ('a.tsv', 'good\tbad\nA\t \n', 'a.tsv, line 2: a sentence is empty'),
    ('a.jsonl', '{"good": "A"}\n', 'a.jsonl, line 1: expected an object with'),
    ('d/x.txt', 'A\nB\nC\n', 'x.txt: 3 lines, expected an even number'),
    ('d/x.jsonl', '{"sentence_good": "A"}', 'x.jsonl, line 1: expected an ob'),
    ('d/x.csv', 'A', 'd: holds neither NAME.jsonl, as BLiMP, nor NAME.txt'),
  ],
)
def test_what_is_no_pair_is_named(name, text, message, tmp_path):
  path = tmp_path / name
  path.parent.mkdir(exist_ok=True)
  path.write_text(text)
  where = path if path.parent == tmp_path else path.parent
  with pytest.raises(ValueError, match=message):
    minimal_pairs.read(str(where))
  with pytest.raises(FileNotFoundError, match='no such file or folder'):
    minimal_pairs.read(str(tmp_path / 'none'))


def test_the_command_compares_models(run_command, tmp_path):
  small_published.write_bert(tmp_path / 'bert', tokenizer_of('wordpiece'))
  small_published.write_gpt(tmp_path / 'gpt2', tokenizer_of('bytebpe'))
  (tmp_path / 'x.arpa').write_text(
    '\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<s>\n-1\t</s>\n-2\t<unk>\n'
    '-0.5\treturns\n\n\\end\\\n'
  )
  (tmp_path / 'pairs.jsonl').write_text(
    ''.join(
      json.dumps({'good': good, 'bad': bad, 'group': group}) + '\n'
      for good, bad, group in [
        ('The function returns a value.', 'The function return a value.', 'v'),
        ('It returns.', 'It return.', 'v'),
        ('A name is bound.', 'A name are bound.', 'be'),
      ]
    )
  )
  said = run_command(
    door,
    'bert',
    'pairs.jsonl',
    '--beside=gpt2',
    '--figure=bars.png',
    '--scores=scores.csv',
    '--output=figures.json',
  )
  assert '| **mean over groups** |' in said.out
  assert 'bert: ' in said.out and '(McNemar, exact)' in said.out
  assert 'each piece hidden in turn' in said.out
  assert 'after the symbol <|endoftext|>' in said.out
  (figures,) = json.loads((tmp_path / 'figures.json').read_text())[
    'pairs'
  ].values()
  assert (tmp_path / 'bars.png').read_bytes()[:4] == b'\x89PNG'
  with (tmp_path / 'scores.csv').open() as file:
    rows = list(csv.DictReader(file))
  for name in ('bert', 'gpt2'):
    right = [
      float(row[f'{name} good']) > float(row[f'{name} bad']) for row in rows
    ]
    assert figures['models'][name]['share'] == pytest.approx(np.mean(right))
  again = run_command(
    door, 'x.arpa', 'pairs.jsonl', '--scoring=mean', '--limit=1', '--json'
  )
  found = json.loads(again.out)['pairs']['pairs.jsonl']['models']['x.arpa']
  # Only "returns" is known to the n-grams, and in one good sentence.
  assert found['pairs'] == 2 and found['groups'] == {'v': 1.0, 'be': 0.0}
  assert found['ties'] == 1
  for given, message in (
    (['bert', 'pairs.jsonl', '--beside=bert'], '--beside: the same twice'),
    (['bert', 'pairs.jsonl', 'pairs.jsonl'], 'PAIRS: the same twice'),
    (['x.arpa', 'pairs.jsonl', '--within_word'], '--within_word: x.arpa holds'),
    (['gpt2', 'pairs.jsonl', '--within_word'], '--within_word: gpt2 holds'),
    (['x.arpa', 'pairs.jsonl', '--scoring=holistic'], '--scoring=holistic: x'),
    (['bert', 'pairs.jsonl', '--scoring=forward'], 'expected one of sum, holi'),
  ):
    with pytest.raises(SystemExit, match=message):
      run_command(door, *given)


def test_several_sets_share_a_command_and_a_picture(run_command, tmp_path):
  small_published.write_bert(tmp_path / 'bert', tokenizer_of('wordpiece'))
  (tmp_path / 'zorro').mkdir()
  families, _ = published_pairs.read('zorro')
  for group in (group for of in families.values() for group in of):
    (tmp_path / f'zorro/{group}.txt').write_text('It are.\nIt is.\nA.\nA.\n')
  (tmp_path / 'own.tsv').write_text('good\tbad\nA name.\tName a.\n')
  said = run_command(
    door, 'bert', 'zorro', 'own.tsv', '--figure=bars.png', '--output=all.json'
  )
  assert '23 of 46 pairs have two equal sentences' in said.err
  assert f'{sorted(families)[0]}' in said.out
  sets = json.loads((tmp_path / 'all.json').read_text())['pairs']
  assert list(sets) == ['zorro', 'own.tsv']
  assert not sets['own.tsv']['published']
  assert 'BabyBERTa, Wikipedia-1' in sets['zorro']['published']
  assert sets['zorro']['models']['bert']['ties'] == 23
  assert (tmp_path / 'bars.png').read_bytes()[:4] == b'\x89PNG'
  run_command(door, 'bert', 'own.tsv', '--output=alone.json')
  alone = json.loads((tmp_path / 'alone.json').read_text())['pairs']
  assert alone['own.tsv'] == sets['own.tsv']


def test_a_sentence_that_cannot_be_read_has_its_line(run_command, tmp_path):
  small_published.write_bert(tmp_path / 'bert', tokenizer_of('wordpiece'))
  long = 'word ' * 600
  (tmp_path / 'a.tsv').write_text(f'good\tbad\nA\tB\n\nA\t{long}\n')
  with pytest.raises(SystemExit, match=r"a.tsv, line 4: 'word .* pieces with"):
    run_command(door, 'bert', 'a.tsv')


def test_other_line_ends_are_parts_of_sentences(tmp_path):
  (tmp_path / 'x.txt').write_text('bad\x85more\ngood\u2028more\r\n', newline='')
  (pair,) = minimal_pairs.read(str(tmp_path))
  assert (pair.good, pair.bad) == ('good\u2028more', 'bad\x85more')
