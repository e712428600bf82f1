"""Parts of speech, constituents, roles and heads, counted by hand."""

import collections

import probe_sets
import pytest

from data.tasks.probes import targets, tasks, treebanks


@pytest.fixture
def folder(tmp_path):
  return probe_sets.write(tmp_path)


def read(name, folder):
  return tasks.load(tasks.PROBES[name], folder, 'dev')


def test_small_files(folder):
  pos = read('pos', folder)
  assert [len(each.words) for each in pos] == [6, 1, 4]
  assert probe_sets.shown(pos[2]) == 'PRP:0-1 VBD:1-2 PRP:2-3 VB:3-4'
  constituents = read('constituents', folder)
  assert [probe_sets.shown(each) for each in constituents] == [
    'TOP:0-6 S:0-6 NP:0-1 VP:1-5 NP:2-5 PP:3-5 NP:4-5',
    'TOP:0-1 INTJ:0-1',
    'TOP:0-4 S:0-4 NP:0-1 VP:1-4 NP:2-3 VP:3-4',
  ]
  roles = read('srl', folder)
  # Sentences without a predicate have no row.
  assert [probe_sets.shown(each) for each in roles] == [
    'ARG0:1-2,0-1 ARG1:1-2,2-5',
    'ARG0:1-2,0-1 ARG1:1-2,2-3 C-ARG1:1-2,3-4 ARG0:3-4,2-3',
  ]
  is_scored = tasks.PROBES['srl'].is_scored
  assert [is_scored(x) for x in ('ARG1', 'C-ARG1', 'R-ARG0')] == [1, 0, 0]
  heads = read('dependencies', folder)
  assert heads[0].words == ('Ann', "'s", 'figs')
  assert [probe_sets.shown(each) for each in heads] == [
    'nmod:poss:0-1,2-3 case:1-2,0-1 root:2-3,2-3',
    'root:0-1,0-1',
  ]


@pytest.mark.parametrize(
  ('label', 'plain'),
  [
    ('NP', 'NP'),
    ('NP-SBJ-1', 'NP'),
    ('S=2', 'S'),
    ('-LRB-', '-LRB-'),
    ('ADJP|ADVP', 'ADJP'),
  ],
)
def test_function_tags_are_cut_off(label, plain):
  assert treebanks.without_function(label) == plain


@pytest.mark.parametrize(
  ('name', 'old', 'new', 'message'),
  [
    ('constituents', '(NP*', 'NP*', r"line 3: found the parse bit 'NP\*', exp"),
    ('constituents', '*)))', '*))))))', r'expected no \) without its \('),
    (
      'constituents',
      '*))))',
      '*)))',
      'the end of the sentence, expected the e',
    ),
    ('pos', '\t(TOP(INTJ*))\t-\t-', '', 'line 8: found 5 columns, expected 8'),
    ('srl', '(C-ARG1*)', '(C-ARG1*', 'expected the end of C-ARG1'),
  ],
)
def test_wrong_columns_are_named(folder, name, old, new, message):
  file = folder / 'ewt_propbank' / 'ewt_srl_dev.gold_conll'
  text = file.read_text()
  assert old in text
  file.write_text(text.replace(old, new, 1))
  with pytest.raises(ValueError, match=message):
    read(name, folder)


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    (
      '\t1\tcase',
      '\t4\tcase',
      'line 4: found the head 4, expected one from 0 to 3',
    ),
    ("2\t's", "7\t's", 'found the word 7, expected the word 2, joined words'),
    ('NNP\t_\t3', 'NNP 3', 'line 3: found 8 columns, expected 10 with tabs be'),
  ],
)
def test_wrong_heads_are_named(folder, old, new, message):
  file = folder / 'ud_english_ewt' / 'en_ewt-ud-dev.conllu'
  file.write_text(probe_sets.CONLLU.replace(old, new, 1))
  with pytest.raises(ValueError, match=message):
    read('dependencies', folder)


def test_the_real_sets(sesame_data):
  counts, labels = {}, {}
  for probe in treebanks.PROBES:
    sentences = tasks.load(probe, sesame_data, 'dev')
    found = sum(len(each.targets) for each in sentences)
    counts[probe.name] = len(sentences), found
    labels[probe.name] = collections.Counter(
      label for each in sentences for x in each.targets for label in x.labels
    )
  # ewt_propbank's README: 24,878 words, 9,576 arguments; UD's: 25,147 words.
  assert counts == {
    'pos': (1963, 24878),
    'constituents': (1963, 23473),
    'dependencies': (2001, 25147),
    'srl': (1529, 9576),
  }
  assert labels['constituents']['TOP'] == 1963
  assert labels['dependencies']['root'] == 2001
  assert targets.labels_of(sentences) == tuple(sorted(labels['srl']))
