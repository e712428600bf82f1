"""The real sets: official counts, first and last examples, quotes unharmed."""

import importlib
import pathlib
import re

import pytest
from etils import epath

from data.scoring import kinds
from data.tasks import examples, registry

# (task, split) -> number of examples; all of them official but MRPC's training
# set, which lacks one pair of the 3,668 here.
SIZES = {
  ('cola', 'train'): 8551,
  ('cola', 'dev'): 1043,
  ('cola', 'test'): 1063,
  ('sst2', 'train'): 67349,
  ('sst2', 'dev'): 872,
  ('sst2', 'test'): 1821,
  ('mrpc', 'train'): 3667,
  ('mrpc', 'dev'): 408,
  ('mrpc', 'test'): 1725,
  ('stsb', 'train'): 5749,
  ('stsb', 'dev'): 1500,
  ('stsb', 'test'): 1379,
  ('qnli', 'dev'): 5463,
  ('qnli', 'test'): 5463,
  ('rte', 'train'): 2490,
  ('rte', 'dev'): 277,
  ('rte', 'test'): 3000,
  ('wnli', 'train'): 635,
  ('wnli', 'dev'): 71,
  ('wnli', 'test'): 146,
  ('mnli', 'diagnostic'): 1104,
  ('scitail', 'train'): 23596,
  ('scitail', 'dev'): 1304,
  ('scitail', 'test'): 2126,
  ('sst5', 'train'): 8544,
  ('sst5', 'dev'): 1101,
  ('sst5', 'test'): 2210,
  ('sst5_phrases', 'train'): 318582,
  ('sst5_phrases', 'dev'): 1101,
  ('squad1', 'train'): 87599,
  ('squad1', 'dev'): 10570,
  ('squad2', 'dev'): 11873,
  ('panx_en', 'train'): 20000,
  ('panx_en', 'dev'): 10000,
  ('panx_en', 'test'): 10000,
  ('panx_zh', 'train'): 20000,
  ('panx_zh', 'dev'): 10000,
  ('panx_zh', 'test'): 10000,
  ('ud_pos', 'train'): 12544,
  ('ud_pos', 'dev'): 2001,
  ('ud_pos', 'test'): 2077,
  ('ud_pos', 'test_pud'): 1000,
}


@pytest.fixture(scope='module')
def load(sesame_data):
  """Returns a function (task, split) -> examples, each read once."""
  kept = {}

  def read(name, split):
    if (name, split) not in kept:
      task = registry.find(name)
      kept[name, split] = registry.load(task, str(sesame_data), split)
    return kept[name, split]

  return read


@pytest.mark.slow
@pytest.mark.parametrize('name, split', SIZES)
def test_counts_are_the_official_ones(load, name, split):
  found = load(name, split)
  task = registry.find(name)
  assert len(found) == SIZES[name, split]
  if (name, split) != ('mrpc', 'train'):
    assert len(found) == task.sizes[split]
  if split in ('train', 'dev') and task.labels:
    tags = (
      tag
      for example in found
      for tag in getattr(example, 'tags', None) or [example.label]
    )
    assert set(tags) == set(task.labels)


def test_another_number_than_the_official_one_is_told(sesame_data, capsys):
  registry.load(registry.find('mrpc'), str(sesame_data), 'train')
  assert (
    "train.tsv: holds 3,667 examples, MRPC has 3,668 in the split 'train'"
    in capsys.readouterr().err
  )
  registry.load(registry.find('mrpc'), str(sesame_data / 'glue'), 'dev')
  assert not capsys.readouterr().err


def test_a_folder_of_each_depth_is_a_source(sesame_data):
  task = registry.find('wnli')
  depths = [
    registry.load(task, str(sesame_data / part), 'dev')
    for part in ('', 'glue', 'glue/WNLI')
  ]
  assert depths[0] == depths[1] == depths[2]
  assert registry.has_split(task, str(sesame_data), 'test')
  mnli = registry.find('mnli')
  for part in ('', 'glue', 'glue/diagnostic'):
    assert registry.has_split(mnli, str(sesame_data / part), 'diagnostic')
    assert not registry.has_split(mnli, str(sesame_data / part), 'train')


def test_limits_are_evenly_spaced(sesame_data, load):
  task = registry.find('rte')
  some = registry.load(task, str(sesame_data), 'train', limit=10)
  assert some == examples.evenly(load('rte', 'train'), 10)
  assert some == load('rte', 'train')[::249]


def test_texts_of_glue(load):
  assert load('cola', 'train')[0] == examples.TextExample(
    '0',
    (
      "Our friends won't buy this analysis, let alone the next one we propose.",
    ),
    '1',
  )
  assert load('cola', 'test')[0] == examples.TextExample(
    '0', ('Bill whistled past the house.',), None
  )
  assert load('sst2', 'dev')[1] == examples.TextExample(
    '1', ('unflinchingly bleak and desperate ',), '0'
  )
  assert load('stsb', 'dev')[1] == examples.TextExample(
    '1',
    ('A young child is riding a horse.', 'A child is riding a horse.'),
    4.75,
  )
  assert load('stsb', 'test')[0].label is None
  assert load('qnli', 'dev')[1].label == 'not_entailment'
  assert load('qnli', 'dev')[0].texts[0].startswith('What came into force')
  assert load('rte', 'train')[0] == examples.TextExample(
    '0',
    (
      'No Weapons of Mass Destruction Found in Iraq Yet.',
      'Weapons of Mass Destruction Found in Iraq.',
    ),
    'not_entailment',
  )
  assert load('mnli', 'diagnostic')[-1] == examples.TextExample(
    '1103',
    (
      "The new general artificial intelligence I'm developing should come with "
      'an off switch.',
      'A general artificial intelligence should always come with an off '
      'switch.',
    ),
    None,
  )


def test_unbalanced_quotes_stay(load):
  assert load('mrpc', 'dev')[0].texts[1] == (
    '" The foodservice pie business does not fit our long-term growth strategy '
    '.'
  )
  texts = [t for e in load('mrpc', 'train') for t in e.texts]
  assert any(text.count('"') % 2 for text in texts)


def test_mrpc_test_is_the_same_from_both_files(sesame_data, load):
  task = registry.find('mrpc')
  file = epath.Path(sesame_data) / 'glue/MRPC/test.tsv'
  plain = task.read(file, 'test')
  told = load('mrpc', 'test')
  assert [(e.id, e.texts) for e in plain] == [(e.id, e.texts) for e in told]
  assert {e.label for e in plain} == {None}
  assert [e.label for e in told[:2]] == ['1', '1']


def test_mrpc_out_of_microsofts_file(sesame_data, load, tmp_path):
  """GLUE's dev set is named by its pairs; the rest is for training."""
  folder = sesame_data / 'glue/MRPC'
  whole = tmp_path / 'msr_paraphrase_train.txt'
  whole.write_bytes((folder / whole.name).read_bytes())
  task = registry.find('mrpc')
  with pytest.raises(ValueError, match='expected train.tsv and dev.tsv, or be'):
    registry.load(task, str(tmp_path), 'train')
  lines = (folder / 'dev.tsv').read_text('utf-8-sig').splitlines()[1:]
  pairs = ['\t'.join(line.split('\t')[1:3]) for line in lines]
  (tmp_path / 'dev_ids.tsv').write_text('\n'.join(['#1 ID\t#2 ID', *pairs]))
  train = registry.load(task, str(tmp_path), 'train')
  dev = registry.load(task, str(tmp_path), 'dev')
  assert (len(train), len(dev)) == (3668, 408)
  known = {e.texts: e.label for e in load('mrpc', 'train')}
  assert sum(known.get(e.texts) == e.label for e in train) == 3667
  assert {e.texts for e in dev} == {e.texts for e in load('mrpc', 'dev')}


def test_scitail_labels_are_words(load):
  """Some rows tell them by number, others by word."""
  assert load('scitail', 'train')[0] == examples.TextExample(
    '0',
    (
      'Pluto rotates once on its axis every 6.39 Earth days;',
      'Earth rotates on its axis once times in one day.',
    ),
    'neutral',
  )
  labels = [example.label for example in load('scitail', 'train')]
  assert labels.count('entails') == 8602
  assert load('scitail', 'test')[0].label is None


def test_sentiment_trees(load):
  sentence = "It 's a lovely film with lovely performances by Buy and Accorsi ."
  assert load('sst5', 'dev')[0].texts == (sentence,)
  assert load('sst5', 'dev')[0].label == '3'
  assert load('sst5', 'train')[28].texts[0].startswith('( Taymor ) utilizes')
  assert load('sst5', 'train')[-1].texts == ('In this case zero .',)
  phrases = load('sst5_phrases', 'train')
  assert phrases[0].texts == load('sst5', 'train')[0].texts
  assert (phrases[2].texts, phrases[2].label) == (('The',), '2')
  assert load('sst5_phrases', 'dev') == load('sst5', 'dev')


def test_questions(load):
  first = load('squad1', 'train')[0]
  assert first.question == 'In what year did the earthquake in Sichuan occur?'
  assert first.answers == (('2008', 4),)
  dev = load('squad2', 'dev')
  assert sum(not example.answers for example in dev) == 5945
  assert all(example.is_labelled for example in dev)
  assert max(len(example.answers) for example in dev) > 1
  for example in load('squad1', 'dev'):
    assert all(
      example.context[start:].startswith(text)
      for text, start in example.answers
    )


def test_tagged_sentences(load):
  assert load('panx_en', 'train')[0].words[:3] == ('R.H.', 'Saunders', '(')
  assert load('panx_en', 'train')[0].tags[:3] == ('B-ORG', 'I-ORG', 'O')
  assert load('panx_en', 'test')[0].tags is None
  assert load('panx_en', 'test')[0].words[-1] == '.'
  assert load('panx_zh', 'dev')[0].words[:3] == ('前', '鎮', '區')
  assert load('panx_en', 'dev')[9999].id == '9999'


def test_every_task_is_declared_in_full():
  for name, task in registry.TASKS.items():
    assert task.name == name
    assert task.kind in kinds.KINDS
    assert {'train', 'dev'} <= set(task.files)
    assert task.url.startswith('https://')
    assert task.folders
    assert task.tfds is None or all(task.tfds)
    has_labels = task.kind not in ('regression', 'choice', 'span')
    assert bool(task.labels) == has_labels
    assert bool(task.num_choices) == (task.kind == 'choice')


def test_the_table_of_tasks_has_those_of_all_modules():
  for module, names in registry.MODULES.items():
    found = importlib.import_module(f'data.tasks.{module}')
    assert tuple(task.name for task in found.TASKS) == names
  folder = pathlib.Path(registry.__file__).parent
  modules = {
    '.'.join(path.relative_to(folder).with_suffix('').parts)
    for path in folder.rglob('*.py')
    if re.search(r'^TASKS\b', path.read_text(), re.MULTILINE)
  }
  assert modules - {'registry'} == registry.MODULES.keys()
