"""Rows of ELMo's task models: their commands, or reasons against them."""

import gzip

import numpy as np
import pytest
from etils import epath
from fake_tables import cells_of

from configs.tables import base
from data.scoring.kinds import KINDS
from data.tasks import registry
from train.papers import table_plan, table_rows, tables
from train.transfer import bodies, task_plan

GLOVE = {'task.word_vectors': 'glove.txt'}
FAMILY = {'e': 'elmo', 'b': 'bert', 'g': 'gpt', 'v': base.VECTORS}
TABLES = [
  table_id
  for table_id in table_rows.shipped_tables()
  if any(row.models for row in table_rows.load_table(table_id).rows)
]


def cells(table_id, weights, overrides=None):
  table = table_rows.load_table(table_id)
  return cells_of(table, weights, FAMILY, overrides=overrides)


def runs(table_id, row, weights, overrides=None):
  """Returns {task: run} of a row with weights."""
  return {
    run.part.task: run
    for cell in cells(table_id, {row: weights}, overrides)
    for run in cell.runs
    if cell.line.name == row and not cell.reason
  }


def words_of(run):
  """Returns the changed part of a command."""
  command = run.command.removeprefix('python -m train.sweep --config transfer:')
  return (
    command.partition(' --seeds')[0]
    .replace('--config.', '')
    .replace('data.source=sets ', '')
    .removesuffix(' data.source=sets')
  )


ESIM = 'task.mix_at=both task.mix_layer_norm=True task.mix_l2=0.001'
READS_E = 'init.weights=e'
SRL = (
  'task.word_dim=0 task.mix_dropout=0.1 task.mix_l2=0.001 train.patience=200'
)
# (table, row, weights, its user's keys) -> the commands.
COMMANDS = [
  (
    'elmo/main',
    'ELMo + baseline',
    'e',
    GLOVE,
    f'task=squad1,model=bidaf_plus {READS_E} task.word_vectors=glove.txt',
    f'task=snli,model=esim {READS_E} {ESIM} task.word_vectors=glove.txt',
    f'task=srl,model=deep_srl {READS_E} {SRL}',
    f'task=coref,model=e2e_coref {READS_E} task.word_vectors=glove.txt',
    f'task=conll2003,model=bilstm_crf {READS_E} task.mix_l2=0.1'
    ' task.word_vectors=glove.txt',
    f'task=sst5_phrases,model=bcn {READS_E}'
    ' task.mix_l2=0.001 task.word_vectors=glove.txt',
  ),
  (
    'elmo/main',
    'Baseline without ELMo',
    'v',
    GLOVE,
    'task=squad1,model=bidaf_plus task.word_vectors=v',
    'task=snli,model=esim task.word_vectors=v',
    'task=srl,model=deep_srl task.word_vectors=v',
    'task=coref,model=e2e_coref task.word_vectors=v',
    'task=conll2003,model=bilstm_crf task.word_vectors=v',
    'task=sst5_phrases,model=bcn task.word_vectors=v model.dropout_rate=0.25',
  ),
  (
    'elmo/main',
    'ELMo + baseline',
    'e',
    {},
    f'task=squad1,model=bidaf_plus {READS_E}',
    f'task=snli,model=esim {READS_E} {ESIM}',
    f'task=srl,model=deep_srl {READS_E} {SRL}',
    f'task=coref,model=e2e_coref {READS_E}',
    f'task=conll2003,model=bilstm_crf {READS_E} task.mix_l2=0.1',
    # Drawn vectors are learned.
    f'task=sst5_phrases,model=bcn {READS_E} task.mix_l2=0.001',
  ),
  (
    'elmo/layer_weighting',
    'Baseline',
    'v',
    {},
    'task=squad1,model=bidaf_plus task.word_vectors=v',
    'task=snli,model=esim task.word_vectors=v',
    'task=srl,model=deep_srl task.word_vectors=v',
  ),
  (
    'elmo/layer_weighting',
    'Last layer only',
    'e',
    {},
    f'task=squad1,model=bidaf_plus {READS_E} task.features=last'
    ' task.mix_l2=0.0 task.mix_layer_norm=False',
    f'task=snli,model=esim {READS_E} task.mix_at=both task.mix_layer_norm=False'
    ' task.mix_l2=0.0 task.features=last',
    f'task=srl,model=deep_srl {READS_E} {SRL.replace("0.001", "0.0")}'
    ' task.features=last task.mix_layer_norm=False',
  ),
  (
    'elmo/layer_weighting',
    'All layers, lambda=1',
    'e',
    {},
    f'task=squad1,model=bidaf_plus {READS_E} task.features=mix task.mix_l2=1.0',
    f'task=snli,model=esim {READS_E} task.mix_at=both task.mix_layer_norm=True'
    ' task.mix_l2=1.0 task.features=mix',
    f'task=srl,model=deep_srl {READS_E} {SRL.replace("0.001", "1.0")}'
    ' task.features=mix',
  ),
  (
    'elmo/where',
    'Output only',
    'e',
    {},
    f'task=squad1,model=bidaf_plus {READS_E} task.mix_at=output'
    ' task.word_dim=100',
    f'task=snli,model=esim {READS_E} {ESIM.replace("both", "output")}'
    ' task.word_dim=100',
    f'task=srl,model=deep_srl {READS_E} {SRL.replace("dim=0", "dim=100")}'
    ' task.mix_at=output',
  ),
  (
    'gpt/nli',
    'ESIM + ELMo (5x)',
    'e',
    {},
    f'task=snli,model=esim {READS_E} {ESIM}',
  ),
  (
    'gpt/similarity_classification',
    'Single-task BiLSTM + ELMo + Attn',
    'e',
    {},
    *(
      f'task={task},model=bilstm_attention {READS_E} task.word_dim=0'
      for task in 'cola sst2 mrpc stsb qqp mnli qnli rte wnli'.split()
    ),
  ),
  (
    'bert/glue',
    'BiLSTM+ELMo+Attn',
    'e',
    {},
    *(
      f'task={task},model=bilstm_attention {READS_E} task.word_dim=0'
      for task in 'mnli qqp qnli sst2 cola stsb mrpc rte'.split()
    ),
  ),
  (
    'bert/ner',
    'ELMo+BiLSTM+CRF',
    'e',
    {},
    f'task=conll2003,model=bilstm_crf {READS_E} task.mix_l2=0.1',
  ),
  (
    'bert/swag',
    'ESIM+GloVe',
    'v',
    {},
    'task=swag,model=esim task.word_vectors=v',
  ),
  (
    'bert/swag',
    'ESIM+ELMo',
    'e',
    GLOVE,
    f'task=swag,model=esim {READS_E} task.word_vectors=glove.txt',
  ),
]


@pytest.mark.parametrize(
  ('table_id', 'row', 'weights', 'overrides', 'expected'),
  [(*case[:4], case[4:]) for case in COMMANDS],
  ids=[f'{case[0]}-{case[1]}-{len(case[3])}' for case in COMMANDS],
)
def test_commands_are_as_published(table_id, row, weights, overrides, expected):
  found = runs(table_id, row, weights, overrides)
  assert sorted(map(words_of, found.values())) == sorted(expected)
  assert not any(run.grid for run in found.values())


@pytest.mark.parametrize('table_id', TABLES)
def test_models_read_the_tasks_and_settings_are_checked(table_id, monkeypatch):
  monkeypatch.setattr(table_plan, 'count_examples', lambda *_: 1000)
  table = table_rows.load_table(table_id)
  rows = [row for row in table.rows if row.models and row.family]
  names = {family: name for name, family in FAMILY.items()}
  weights = {row.name: names[row.family] for row in rows if row.family in names}
  seen = set()
  for cell in cells(table_id, weights | {'mine': 'b'}, GLOVE):
    for run in cell.runs:
      if run.model is None or cell.reason:
        continue
      config = table_plan.resolve(run)
      task_plan.check_settings(config)
      for task in map(registry.find, run.part.task.split('+')):
        reads = bodies.BODIES[config.model.name].reads[task.kind]
        assert KINDS[task.kind].num_texts(task) in reads
      seen.add(cell.line.name)
  assert {row.name for row in rows} <= seen


def test_other_rows_do_not_get_keys_of_task_models():
  table = table_rows.load_table('bert/ner')
  weights = {'BERT-Base': 'b', 'ELMo+BiLSTM+CRF': 'e'}
  overrides = GLOVE | {'task.document_context': True, 'train.seed': 7}
  found = {
    cell.line.name: cell.runs[0].overrides
    for cell in cells_of(table, weights, FAMILY, overrides=overrides)
  }
  bert, elmo = found['BERT-Base'], found['ELMo+BiLSTM+CRF']
  assert 'task.word_vectors' not in bert and bert['task.document_context']
  assert 'task.document_context' not in elmo
  assert elmo['task.word_vectors'] == 'glove.txt'
  assert bert['train.seed'] == elmo['train.seed'] == 7
  request = table_plan.CellRequest(
    table_rows.load_table('gpt/qa'), epath.Path('out'), 'sets', 1, GLOVE
  )
  engine = tables.Engine(family_of=FAMILY.get, has_split=lambda *_: True)
  with pytest.raises(ValueError, match='word_vectors: no row of gpt/qa has'):
    tables.make_table(request, {'mine': 'g'}, engine=engine)


def test_several_tasks_have_one_run_and_a_cell_of_each():
  name = 'Multi-task BiLSTM + ELMo + Attn'
  found = [
    cell
    for cell in cells('gpt/similarity_classification', {name: 'e'})
    if cell.line.name == name
  ]
  assert {cell.reason for cell in found} == {''}
  (key,) = {run.key for cell in found for run in cell.runs}
  assert key[1] == 'cola+sst2+mrpc+stsb+qqp+mnli+qnli+rte+wnli'
  run = found[0].runs[0]
  assert run.config == f'transfer:task={key[1]},model=bilstm_attention'
  assert run.part.metrics == ('cola/dev/matthews',)
  assert table_plan.resolve(run).task.names[2] == 'mrpc'
  of_all = {metric for run in found[-1].runs for metric in run.part.metrics}
  assert {'mnli/dev_mismatched/accuracy', 'stsb/dev/spearman'} <= of_all


def test_no_cell_of_elmos_table_lacks_a_model():
  found = cells('elmo/main', {'ELMo + baseline': 'e', 'mine': 'b'})
  reasons = {
    cell.column.name: cell.reason for cell in found if cell.line.name == 'mine'
  }
  assert set(reasons.values()) == {''} and len(reasons) == 6
  # What was not published is not asked for.
  columns = {
    cell.column.name
    for cell in cells('gpt/nli', {})
    if cell.line.name == 'ESIM + ELMo (5x)'
  }
  assert columns == {'snli/accuracy'}


@pytest.mark.parametrize(
  ('row', 'weights', 'reason'),
  [
    ('ELMo + baseline', 'v', 'family elmo, and v holds vectors of words'),
    ('ELMo + baseline', 'b', 'family elmo, and b is of the family bert'),
    (
      'Baseline without ELMo',
      'e',
      'needs a file of vectors of words, and e is of the family elmo',
    ),
    ('mine', 'v', 'needs a language model, and v holds vectors of words'),
  ],
)
def test_weights_of_the_wrong_kind_are_refused(row, weights, reason):
  (cell,) = (
    cell
    for cell in cells('elmo/main', {row: weights})
    if (cell.line.name, cell.column.name) == (row, 'snli/accuracy')
  )
  assert reason in cell.reason


def test_ones_own_weights_are_read_by_task_models():
  found = runs('elmo/main', 'mine', 'g')
  assert found.keys() == {
    'squad1',
    'snli',
    'srl',
    'coref',
    'conll2003',
    'sst5_phrases',
  }
  expected = f'task=snli,model=esim init.weights=g {ESIM}'
  assert words_of(found['snli']) == expected
  found = runs('elmo/where', 'mine: Input only', 'b')
  assert not found  # named by the weights alone
  own = [c for c in cells('elmo/where', {'mine': 'b'}) if c.line.is_own]
  assert list(dict.fromkeys(cell.line.name for cell in own)) == [
    'mine: Input only',
    'mine: Input & output',
    'mine: Output only',
  ]
  assert [
    cell.runs[0].overrides['task.mix_at']
    for cell in own
    if cell.column.name == 'snli/accuracy'
  ] == ['input', 'both', 'output']


def test_ones_own_rows_are_found_again_with_their_settings(tmp_path):
  table = table_rows.load_table('elmo/where')
  request = table_plan.CellRequest(table, epath.Path(tmp_path), 'sets')
  first = table_rows.find_lines(
    table, request.folder, {'mine': 'b'}, FAMILY.get
  )
  for line in first:
    if line.is_own:
      folder = request.folder / table_rows.slug(line.name)
      table_rows.write_line(line, folder)
  again = table_rows.find_lines(table, request.folder, {}, FAMILY.get)
  assert [line._replace(weights='b') for line in again if line.is_own] == [
    line for line in first if line.is_own
  ]


@pytest.mark.parametrize(
  'text',
  [
    b'the 0.418 0.24968 -4e-05\nof .1 2 3.\n',
    b'400000 50\nthe 0.1',
    b'2 3 \nthe \x00\x00\x80?\x00\x00\x80?\x00\x00\x80?',
    b'\xef\xbb\xbf, -0.082752 0.67204\n',
  ],
)
def test_a_file_of_vectors_is_told_by_its_beginning(tmp_path, text):
  file = tmp_path / 'vectors'
  file.write_bytes(text)
  assert tables.family_of(str(file)) == base.VECTORS
  packed = tmp_path / 'vectors.gz'
  packed.write_bytes(gzip.compress(text))
  assert tables.family_of(str(packed)) == base.VECTORS


def test_other_files_are_no_vectors(tmp_path):
  for number, text in enumerate((b'[PAD]\n[UNK]', b'# A title 2\n', b'', b'{')):
    file = tmp_path / str(number)
    file.write_bytes(text)
    with pytest.raises(ValueError, match='or a file of vectors: a word'):
      tables.family_of(str(file))
  folder = tmp_path / 'glove'
  folder.mkdir()
  np.save(folder / 'x_emb.npy', np.zeros((1, 2)))
  assert not tables.is_vectors(str(folder))
  (folder / 'x_index.parquet').touch()
  assert tables.family_of(str(folder)) == base.VECTORS
  assert not tables.is_vectors('hf://google-bert/bert-base-uncased')
  assert not tables.is_vectors('google-bert/bert-base-uncased')


# Tasks of the larger models, which two rows alone are run on; their cells.
LARGE = {'srl_ewt': 100, 'coref_gum': 64, 'squad1': 50}


def test_our_table_has_the_same_recipe_for_each_row():
  table = table_rows.load_table('sesame/elmo')
  weights = {'GloVe 50d': 'v', 'mine': 'g'} | dict.fromkeys(
    ('GloVe + ELMo at the input', 'GloVe + ELMo at both'), 'e'
  )
  by_task, lacking = {}, set()
  for cell in cells_of(table, weights, FAMILY, overrides=GLOVE):
    run = cell.runs[0]
    if cell.reason:
      lacking.add((cell.line.name, run.part.task))
      continue
    config = table_plan.resolve(run)
    found = by_task.setdefault(run.part.task, {})
    found[cell.line.name] = config.task.word_vectors, config.task.mix_at
    task = run.part.task
    assert run.num_seeds == (2 if task in LARGE else 3)
    assert config.model.lstm_dim == LARGE.get(task, 64)
    assert config.task.word_dim == 50 and config.task.lower_words
  assert by_task.keys() == {'sst5', 'scitail', 'panx_en', 'mrpc', *LARGE}
  everywhere = {
    'GloVe 50d': ('v', 'input'),
    'GloVe + ELMo at the input': ('glove.txt', 'input'),
    'mine: GloVe + ELMo at the input': ('glove.txt', 'input'),
  }
  for task, found in by_task.items():
    assert found == everywhere | (
      {}
      if task in LARGE
      else {
        'Drawn vectors': (None, 'input'),
        'GloVe + ELMo at both': ('glove.txt', 'both'),
        'mine: GloVe + ELMo at both': ('glove.txt', 'both'),
      }
    )
  assert lacking == {('mine: GloVe + ELMo at both', task) for task in LARGE}
  reasons = {
    cell.reason for cell in cells_of(table, weights, FAMILY) if cell.reason
  }
  assert reasons == {
    'needs --config.task.word_vectors=VALUE',
    *(
      f'needs a task model for {task}, which is not there yet' for task in LARGE
    ),
  }
