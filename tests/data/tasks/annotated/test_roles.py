"""Semantic roles: the real English Web Treebank, samples, and wrong columns."""

import gzip

import pytest
from etils import epath

from data.scoring import kinds
from data.tasks import examples, registry
from data.vocabulary import tag_schemes

# Split -> predicates, verbs among them, arguments, and V that begin elsewhere.
COUNTS = {
  'train': (40423, 31131, 81405, 11),
  'dev': (4960, 3797, 9576, 2),
  'test': (4795, 3652, 9337, 0),
}


@pytest.fixture(scope='module')
def ewt(sesame_data):
  task = registry.find('srl_ewt')
  return {
    split: registry.load(task, str(sesame_data), split) for split in COUNTS
  }


def test_the_real_files(ewt, capsys):
  roles = set()
  for split, (predicates, verbs, arguments, elsewhere) in COUNTS.items():
    found = ewt[split]
    assert len(found) == predicates
    assert sum(e.group == 'verb' for e in found) == verbs
    assert {e.group for e in found} == {'verb', 'other'}
    begins = [tag for e in found for tag in e.tags if tag.startswith('B-')]
    assert sum(tag != 'B-V' for tag in begins) == arguments
    assert begins.count('B-V') == predicates
    assert elsewhere == sum(e.tags.index('B-V') != e.predicate for e in found)
    roles |= {tag[2:] for tag in begins}
    assert all(tag_schemes.to_iob2(e.tags) == e.tags for e in found)
  assert not capsys.readouterr().err  # the sizes are those of the task
  labels = registry.find('srl_ewt').labels
  assert len(roles) == 60
  assert labels == tag_schemes.iob2_labels(
    dict.fromkeys(x[2:] for x in labels[1:])
  )
  assert {label[2:] for label in labels[1:]} == roles


def test_the_predicates_of_a_sentence(ewt):
  first, second = ewt['dev'][1:3]
  words = (
    'President Bush on Tuesday nominated two individuals to replace retiring '
    'jurists on federal courts in the Washington area .'
  )
  assert first.words == second.words == tuple(words.split())
  assert (first.predicate, second.predicate) == (4, 8)
  assert (first.id, second.id) == ('1-4', '1-8')
  assert (first.sentence, second.sentence) == (1, 1)
  assert (first.lemma, first.roleset) == ('nominate', 'nominate.01')
  assert first.tags[:8] == (
    'B-ARG0',
    'I-ARG0',
    'B-ARGM-TMP',
    'I-ARGM-TMP',
    'B-V',
    'B-ARG1',
    'I-ARG1',
    'B-ARG2',
  )
  assert second.tags[5:10] == ('B-ARG0', 'I-ARG0', 'O', 'B-V', 'B-ARG1')


def test_the_marked_word_is_the_predicate_wherever_the_v_is(ewt):
  (flop,) = [e for e in ewt['train'] if e.words[e.predicate] == 'flopped']
  assert flop.words[8:11] == ('flip', '-', 'flopped')
  assert (flop.predicate, flop.tags.index('B-V')) == (10, 8)


def test_sentences_without_predicates_are_told(ewt, sesame_data):
  """The lengths of all sentences can be told from the examples."""
  file = sesame_data / 'ewt_propbank/ewt_srl_dev.gold_conll'
  blocks = file.read_text('utf-8').strip().split('\n\n')
  lengths = []
  for i, example in enumerate(ewt['dev']):
    lengths += example.skipped[0]
    following = ewt['dev'][i + 1 : i + 2]
    if not following or following[0].sentence != example.sentence:
      assert example.sentence == len(lengths)
      lengths.append(len(example.words))
    lengths += example.skipped[1]
  # A line of each block is a comment.
  assert lengths == [len(block.splitlines()) - 1 for block in blocks]


def read(sesame_data, name):
  path = epath.Path(sesame_data) / 'allennlp_samples' / name
  return registry.read_file(registry.find('srl'), path, 'dev')


def test_samples_of_conll2012(sesame_data):
  # A folder of folders; the lemma of `officials` has no frameset.
  found = read(sesame_data, 'conll_2012')
  assert [(e.id, e.words[e.predicate]) for e in found] == [
    ('0-3', 'say'),
    ('0-8', 'was'),
    ('1-2', 'rested'),
    ('1-11', 'hearings'),
    ('3-3', 'is'),
    ('3-10', 'is'),
    ('4-3', 'is'),
    ('4-10', 'is'),
  ]
  assert found[1] == examples.RoleExample(
    '0-8',
    tuple("Mali government officials say the woman 's confession was".split())
    + ('forced', '.'),
    (*'OOOO', 'B-ARG1', 'I-ARG1', 'I-ARG1', 'I-ARG1', 'B-V', 'B-ARG2', 'O'),
    predicate=8,
    roleset='be.01',
    lemma='be',
  )
  assert found[4].skipped == ((5,), ())
  whole = read(sesame_data, 'data/srl/nt_6401.gold_conll')
  assert whole == read(sesame_data, 'data/srl')
  assert len(whole) == 80
  assert whole[0].skipped == ((5,), ())
  assert whole[2].tags[9:13] == ('B-V', 'B-ARGM-MNR', 'B-ARGM-MNR', 'O')


CONLL05 = """The DT (S(NP* * - - (A1* (A0*
# NN *) * - - *) *)
fell VBD (VP(VP* * 02 fall (V*) *
, , * * - - * *
then RB * * - - * (AM-TMP*)
rose VBD (VP*)) * 01 rise * (V*)

Yes UH (INTJ*) * - -

# # (NP* * - - (AM-MNR*)
said VBD *) * 01 say (V*)
"""


@pytest.mark.parametrize('name', ['train.conll', 'train-set.gz'])
def test_conll2005(tmp_path, name):
  content = CONLL05.encode()
  packed = gzip.compress(content) if name.endswith('.gz') else content
  (tmp_path / name).write_bytes(packed)
  task = registry.find('srl_conll05')
  found = registry.load(task, str(tmp_path), 'train')
  assert found[0] == examples.RoleExample(
    '0-2',
    ('The', '#', 'fell', ',', 'then', 'rose'),
    ('B-A1', 'I-A1', 'B-V', 'O', 'O', 'O'),
    predicate=2,
    lemma='fall',
  )
  assert found[1].tags == ('B-A0', 'I-A0', 'O', 'O', 'B-AM-TMP', 'B-V')
  # A sentence may begin with a pound sign.
  assert found[2].words == ('#', 'said')
  assert [e.skipped for e in found] == [((), ()), ((), ()), ((1,), ())]


def test_the_end_of_a_file_without_predicates(load):
  text = CONLL05 + '\nNo UH (INTJ*) * - -\nmore NN (NP*) * - -'
  found = load('srl_conll05', 'dev', {'devel': text})
  assert [e.skipped for e in found] == [((), ()), ((), ()), ((1,), (2,))]


def test_a_test_split_needs_no_roles(load):
  text = 'Ann NNP (S* * - -\nran VBD *) * 01 run\n'
  (found,) = load('srl_conll05', 'test', {'test.wsj': text})
  assert found == examples.RoleExample(
    '0-1', ('Ann', 'ran'), None, predicate=1, lemma='run'
  )
  with pytest.raises(ValueError, match='line 1: found 0 columns of roles in'):
    load('srl_conll05', 'dev', {'devel': text})


def ewt_lines(*columns, mark='run.01'):
  """A sentence of two words of which the second is the predicate."""
  rows = ('Ann NNP (S* - -', f'ran VBD *) run {mark}')
  return ''.join(
    '\t'.join(('d', '0', str(i), *row.split(), *(c[i] for c in columns))) + '\n'
    for i, row in enumerate(rows)
  )


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    (
      ewt_lines(('(ARG0*', '(V*)')),
      r"line 2: found '\(V\*\)' inside of ARG0, expected the end of ARG0 befo",
    ),
    (
      ewt_lines(('(ARG0*', '*')),
      r"line 2: found '\*' at the end of the sentence, expected the end of ARG",
    ),
    (
      ewt_lines(('*)', '(V*)')),
      r"line 1: found '\*\)' outside of a role, expected \(ROLE\* before it",
    ),
    (
      ewt_lines(('(ARG0(ARG1*)', '(V*)')),
      r"line 1: found '\(ARG0\(ARG1\*\)', expected a role as .*do not overlap",
    ),
    (
      ewt_lines(('(ARG0*)', '-')),
      r"line 2: found '-', expected a role as \(ROLE\*, \*, \*\) or",
    ),
    (
      ewt_lines(('(ARG0*)', '*')),
      r"line 2: found no B-V in 'B-ARG0 O', expected the predicate",
    ),
    (
      ewt_lines(('(ARG0*)', '(V*)'), ('*', '*')),
      r'line 1: found 2 columns of roles in the sentence, expected one for each'
      r' of its 1 predicates: ran',
    ),
    (
      ewt_lines(('(ARG0*)', '(V*)'), mark='-'),
      r'line 1: found 1 columns .* each of its 0 predicates: none',
    ),
    (
      ewt_lines(('(ARG9*)', '(V*)')),
      r"line 2: found the tag 'B-ARG9', expected one of \['O', 'B-V'",
    ),
    (
      ewt_lines(('(ARG0*)', '(V*)'))[:-6] + '\n',
      r'line 2: found 8 columns, expected 9 as in the line before, and an',
    ),
    (
      '# sent_id = 1\nAnn NNP\n',
      r"line 2: found 1 columns, expected 8 or more, and an empty line .*'Ann ",
    ),
  ],
)
def test_wrong_columns_are_named(load, text, message):
  with pytest.raises(ValueError, match=message):
    load('srl_ewt', 'dev', {'ewt_srl_dev.gold_conll': text})


def test_a_wrong_predicate_is_refused():
  example = examples.RoleExample('0', ('a', 'b'), None, predicate=2)
  (problem,) = example.problems(registry.find('srl_ewt'))
  assert problem == (
    'found the predicate at 2, expected the place of one of 2 words, from 0'
  )


def test_a_folder_without_files_of_roles(tmp_path):
  (tmp_path / 'notes.txt').write_text('none')
  with pytest.raises(
    ValueError, match=r'names with gold_conll. The folder hol'
  ):
    registry.read_file(registry.find('srl'), tmp_path, 'dev')


def test_own_files_in_each_format(tmp_path, sesame_data):
  samples = sesame_data / 'allennlp_samples/data/srl/nt_6401.gold_conll'
  (tmp_path / 'mine.txt').write_text(CONLL05)
  (tmp_path / 'mine.tsv').write_text(ewt_lines(('(X*)', '(V*)')))
  (tmp_path / 'tabs.txt').write_text(CONLL05.replace(' ', '\t'))
  for file, count, roles in (
    (tmp_path / 'mine.txt', 3, 'A0 A1 AM-MNR AM-TMP V'),
    (tmp_path / 'tabs.txt', 3, 'A0 A1 AM-MNR AM-TMP V'),
    (tmp_path / 'mine.tsv', 1, 'V X'),
    (samples, 80, None),
  ):
    task = kinds.own_task(kind='roles', train=str(file), dev=str(file))
    assert task.metrics == ('f1', 'precision', 'recall', 'perfect')
    assert task.submission == 'props'
    if roles:
      assert task.labels == tag_schemes.iob2_labels(roles.split())
    found = registry.load(task, '', 'dev')
    assert len(found) == count
  assert found == read(sesame_data, 'data/srl')
  labels = ('O', 'B-V', 'B-A0')
  task = kinds.own_task(
    kind='roles',
    train='gone.txt',
    dev=str(tmp_path / 'mine.txt'),
    labels=labels,
  )
  assert task.labels == labels
  with pytest.raises(ValueError, match=r"'B-A1', .* \(own.labels names other"):
    registry.load(task, '', 'dev')
