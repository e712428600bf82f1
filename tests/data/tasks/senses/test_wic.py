"""WiC: the real files, and wrong ones."""

import collections

import pytest

from data.tasks.senses import wic


def test_the_release(sesame_data, capsys):
  for split, size in (('train', 5428), ('dev', 638), ('test', 1400)):
    pairs = wic.read(sesame_data / 'wic', split)
    counts = collections.Counter(pair.same for pair in pairs)
    assert counts == {True: size // 2, False: size // 2}  # balanced
  assert not capsys.readouterr().err
  # The place is the word's: its form begins as the lemma, but for a few verbs.
  file = sesame_data / 'wic' / 'test' / 'test.data.txt'
  lemmas = [line.split('\t')[0] for line in file.read_text().splitlines()]
  alike = [
    each.words[each.place][:2].lower() == lemma[:2]
    for lemma, pair in zip(lemmas, pairs, strict=True)
    for each in (pair.first, pair.second)
  ]
  assert sum(alike) / len(alike) > 0.97


def write(folder, data, gold, split='dev'):
  (folder / f'{split}.data.txt').write_text(data)
  if gold is not None:
    (folder / f'{split}.gold.txt').write_text(gold)


def test_files_without_folders_and_a_test_set_without_labels(tmp_path, capsys):
  write(tmp_path, 'bank\tN\t1-0\tThe bank .\tBanks lend .\n', None, 'test')
  (pair,) = wic.read(tmp_path, 'test')
  assert pair.same is None
  assert (pair.first.words, pair.first.place) == (('The', 'bank', '.'), 1)
  assert pair.second.where.endswith('test.data.txt, line 1, sentence 2')
  assert 'holds 1 pairs, WiC has 1,400' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('data', 'gold', 'message'),
  [
    ('a\tN\t0-0\ta b\n', 'T\n', 'dev.data.txt, line 1: found 4 columns, expec'),
    ('a\tN\t0\ta b\ta\n', 'T\n', "line 1: found the places '0', expected two"),
    ('a\tN\t0-2\ta b\ta b\n', 'T\n', 'line 1: found the place 2 in a sentence'),
    ('a\tN\t0-0\ta\ta\n', 'T\nF\n', 'dev.gold.txt: found 2 labels, expected o'),
    ('a\tN\t0-0\ta\ta\n', 'X\n', "dev.gold.txt, line 1: found 'X', expected T"),
    ('a\tN\t0-0\ta\ta\n', None, 'dev.gold.txt: no such file'),
    ('\n', 'T\n', 'dev.gold.txt: found 1 labels'),
  ],
)
def test_wrong_lines_are_named(tmp_path, data, gold, message):
  write(tmp_path, data, gold)
  with pytest.raises((ValueError, FileNotFoundError), match=message):
    wic.read(tmp_path, 'dev')
  with pytest.raises(FileNotFoundError, match='found no train/train.data.txt'):
    wic.read(tmp_path, 'train')
