"""Configs: every shipped one loads; names, keys and overrides are checked."""

import json
import pathlib
import sys
import types

import pytest
import runs

from configs import base, variants
from train.architectures import families
from train.papers import table_rows
from train.pretrain import plan
from train.run import settings, training_phases, workdirs
from train.transfer import bodies, task_plan


def check(config, parts=1):
  families.check_config(config)
  shape = {'data': parts, 'fsdp': 1}
  phases = training_phases.check_phases(config)
  plan.check_batches(config, phases, types.SimpleNamespace(shape=shape))


VARIANTS = (
  'bert_base:modern',
  'bert_large:modern',
  'bert_multilingual:modern',
  'bert_mini:modern',
  'gpt:modern',
  'gpt_mini:modern',
  'gpt_tiny:gpt-mini,modern',
  'bert_base:no_nsp',
  'bert_base:ltr_no_nsp',
  'bert_base:mask=0/20/80',
  'bert_large:no_nsp,mask=100/0/0',
  'bert_large_lamb:ltr_no_nsp',
  'bert_mini:bert-l3-h768-a12,no_nsp',
  'bert_tiny:ltr_no_nsp',
  'gpt:lstm',
  'word2vec_novels:cbow',
  'word2vec_large:skipgram',
  'transfer:task=squad2,recipe=stable',
  'transfer:task=stsb,recipe=gpt,model=gpt',
  'transfer:task=conll2003,recipe=frozen,model=bert-base',
  'transfer:task=sst5,model=bcn',
  'transfer:task=swag,model=esim',
  'transfer:task=conll2003,model=bilstm_crf',
  'transfer:task=mrpc+rte+stsb,model=bilstm_attention',
  'distill:task=conll2003,model=bilstm_crf',
  'distill:task=mrpc,model=bert-mini',
  'distilbert:bert-mini',
  'minilm:bert-mini',
)


@pytest.mark.parametrize('name', [*settings.shipped_names(), *VARIANTS])
def test_every_shipped_config_loads_and_checks(name):
  config = settings.load_config(name)
  assert config.is_locked
  if 'task' in config:
    task_plan.check_settings(config)
  else:
    check(config, parts=1)
  expected = variants.get_defaults(config)
  assert settings.flatten(config).keys() == settings.flatten(expected).keys()


def test_a_name_that_is_nearly_known_is_told():
  with pytest.raises(FileNotFoundError, match=r'; did you mean bert_tiny.*\?'):
    settings.config_path('bert_tny')
  with pytest.raises(ValueError, match='; did you mean sesame/transfer'):
    table_rows.load_table('sesame/transfr')
  assert settings.near('qqqq', ['bert_tiny']) == ''


NAMES = 'bert gpt elmo lstm nnlm task words word2vec glove'.split()
NAMES += ['distill_bert', 'distill_task', 'distill_words']


@pytest.mark.parametrize('name', NAMES)
def test_a_config_is_small_and_every_key_has_a_comment(name):
  keys = settings.flatten(variants.make_defaults(name))
  # What declares a set of one's own is no setting of ours.
  most = 94 if 'distill' in name else 85
  assert len([key for key in keys if not key.startswith('own.')]) <= most
  folder = pathlib.Path(base.__file__).parent
  files = [folder / 'base.py', *(folder / 'sections').glob('*.py')]
  lines = [line for file in files for line in file.read_text().splitlines()]
  for key in keys:
    assigned = [
      number
      for number, line in enumerate(lines)
      if f'  {key} = ' in line or f'  config.{key} = ' in line
    ]
    assert assigned, f'{key} is not set in a section'
    line, above = lines[assigned[0]], lines[assigned[0] - 1]
    assert '#' in line or above.strip().startswith('#'), line


@pytest.mark.parametrize('typed', ['None', '3'])
@pytest.mark.parametrize(
  ('name', 'key', 'kind'),
  [
    ('word2vec_novels', 'train.num_epochs', float),
    ('bert_tiny', 'train.steps', int),
    ('bert_tiny', 'data.folder', str),
    ('transfer:task=sst5,model=bcn', 'train.patience', int),
  ],
)
def test_a_key_that_may_be_empty_takes_none(name, key, kind, typed):
  config = settings.load_config(name)
  found = runs.parse(config, [f'--config.{key}={typed}'])
  settings.check_filled(found)
  expected = None if typed == 'None' else kind(3)
  assert settings.flatten(found)[key] == expected


@pytest.mark.parametrize('key', ['train.seed', 'data.loader', 'optim.epsilon'])
def test_a_key_that_needs_a_value_is_refused_without(key):
  config = settings.load_config('bert_tiny')
  with pytest.raises(ValueError, match=f'config.{key}=None: expected a value'):
    settings.check_filled(runs.parse(config, [f'--config.{key}=None']))


def test_task_models_have_one_list_of_names():
  assert set(variants.WORD_MODELS) == set(bodies.BODIES)


def test_bare_name_becomes_a_path_and_argument_stays():
  argv = settings.expand_arguments(['main', '--config', 'bert_tiny:bert-mini'])
  assert argv[2].endswith('configs/bert_tiny.py:bert-mini')
  argv = settings.expand_arguments(['main', '--config=bert_tiny'])
  assert argv[1].startswith('--config=/')
  config = settings.load_config('bert_tiny:bert-mini')
  assert config.model.num_layers == 4


@pytest.mark.parametrize(
  ('arg', 'expected'),
  [
    ('mask=80/10/10', (0.8, 0.1)),
    ('mask=100/0/0', (1.0, 0.0)),
    ('mask=80/0/20', (0.8, 0.2)),
    ('mask=80/20/0', (0.8, 0.0)),
    ('mask=0/20/80', (0.0, 0.8)),
    ('mask=0/0/100', (0.0, 1.0)),
  ],
)
def test_masking_is_named_as_in_the_paper(arg, expected):
  """Per cent of [MASK], same and random (Devlin et al. 2019, Table 8)."""
  (argument,) = settings.expand_arguments([f'--config=bert_base:{arg}'])
  config = settings.load_config(argument.partition('=')[2])
  objective = config.objective
  assert (objective.mask_fraction, objective.random_fraction) == expected
  assert config.model.num_layers == 12
  check(config, parts=1)


def test_units_are_variants_of_bert():
  for arg, unit in (('whole_word', 'word'), ('span', 'span'), ('', 'piece')):
    config = settings.load_config(f'bert_large:{arg}')
    assert config.objective.unit == unit
    check(config, parts=1)
  for arg, unit in (('whole_word', 'word'), ('span', 'span'), ('', 'stored')):
    assert settings.load_config(f'ernie_base:{arg}').objective.unit == unit
  with pytest.raises(ValueError, match='whole_word and span: expected one'):
    settings.load_config('bert_large:whole_word,span')


def test_variants_of_bert_combine():
  config = settings.load_config('bert_large:ltr_no_nsp')
  assert config.model.num_layers == 24 and config.model.left_to_right
  assert config.train.objective == 'lm'
  config = settings.load_config('bert_base:bert-l6-h768-a3,no_nsp')
  assert (config.model.num_layers, config.model.num_heads) == (6, 3)
  assert config.train.objective == 'mlm' and not config.model.left_to_right


@pytest.mark.parametrize(
  ('arg', 'message'),
  [
    ('nsp', "'nsp' is no variant of a BERT: expected one of bert-tiny.*no_nsp"),
    ('no_nsp,mask', "'mask' is no variant"),
    ('mask=80/20', "'mask=80/20': expected three whole numbers"),
    ('mask=80/20/20', 'that sum to 100'),
    ('mask=.8/.1/.1', 'three whole numbers'),
  ],
)
def test_unknown_variants_are_named(arg, message):
  with pytest.raises(ValueError, match=message):
    settings.load_config(f'bert_base:{arg}')


@pytest.mark.parametrize(
  ('one', 'other'),
  [
    ('modern,bert-small', 'bert-small,modern'),
    ('ltr_no_nsp,modern', 'modern,ltr_no_nsp'),
    ('modern,no_nsp,whole_word', 'whole_word,no_nsp,modern'),
  ],
)
def test_words_may_come_in_any_order(one, other):
  configs = [settings.load_config(f'bert_tiny:{arg}') for arg in (one, other)]
  assert settings.flatten(configs[0]) == settings.flatten(configs[1])


def test_words_of_a_modern_bert():
  config = settings.load_config('bert_tiny:modern,bert-small')
  assert (config.model.embed_dim, config.model.mlp_dim) == (512, 1344)
  config = settings.load_config('bert_tiny:ltr_no_nsp,modern')
  assert config.train.objective == 'lm' and config.model.left_to_right
  assert config.objective.first_mask_rate is None
  check(config)


@pytest.mark.parametrize(
  ('name', 'own'),
  [
    ('bert_large_lamb', 'optimiser'),
    ('distilbert', 'objective'),
    ('minilm', 'objective'),
    ('ernie_base', 'objective'),
  ],
)
def test_recipes_of_their_own_are_not_modern(name, own):
  with pytest.raises(
    ValueError, match=f'{name}:modern: .* an {own} of its own'
  ):
    settings.load_config(f'{name}:bert-mini,modern')


@pytest.mark.parametrize(
  'name',
  [
    'gpt_tiny:lstm',
    'nnlm_tiny',
    'elmo_tiny',
    'transfer:task=sst2,model=bcn',
    'distill:task=sst2,model=bilstm_attention',
  ],
)
def test_muon_is_of_transformers(name):
  config = settings.with_overrides(
    settings.load_config(name), {'optim.name': 'muon'}
  )
  with pytest.raises(ValueError, match="optim.name='muon': expected another"):
    settings.check_common(config)


def test_variants_that_set_the_same_exclude_each_other():
  for arg in ('no_nsp,ltr_no_nsp', 'bert-mini,bert-small', 'mask=1/9/90,mask='):
    with pytest.raises(ValueError, match='expected one of them alone'):
      settings.load_config(f'bert_large:{arg}')


OF_ITS_OWN = """
from configs import base, variants

def get_config(arg=''):
  config = base.get_config()
  {}
  return config
"""


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    # A misspelt key, before and after the config is locked.
    (
      OF_ITS_OWN.format('config.optim.learnin_rate = 450'),
      r'mine.py: optim.learnin_rate: .* did you mean optim.learning_rate',
    ),
    (
      OF_ITS_OWN.format('config.lock().model.max_lenth = 64'),
      r'mine.py, line 6: max_lenth: .* did you mean .*model.max_length',
    ),
    (
      OF_ITS_OWN.format(
        'variants.make_defaults("elmo").lock().model.lstm_dimm = 1'
      ),
      r'mine.py, line 6: lstm_dimm: .* did you mean model.lstm_dim',
    ),
    (OF_ITS_OWN.format('config.seed = 1'), 'mine.py: seed: .*train.seed'),
    (OF_ITS_OWN.format('del config.optim'), 'has no optim.beta1, .*base.py'),
    (OF_ITS_OWN.format('config.model.name = "elmo"'), 'has no model.cell_clip'),
    (
      OF_ITS_OWN.format('config.train.seed = "x"'),
      "line 6: TypeError: Could not override field 'seed'",
    ),
    (OF_ITS_OWN.format('int("x")'), 'line 6: invalid literal'),
    (OF_ITS_OWN.format('import non_such'), 'line 6: ModuleNotFoundError'),
    ('x = (', 'mine.py, line 1: SyntaxError'),
    (
      'x = 1',
      r'mine.py: .*; expected a function get_config\(arg\)',
    ),
    ('def get_config(arg): return 5', r"'int'.*a function get_config\(arg\)"),
    (
      'def get_config(): return 5',
      r'0 positional.*a function get_config\(',
    ),
  ],
)
def test_a_file_that_makes_no_config_is_refused(text, message, tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(text)
  with pytest.raises(ValueError, match=message):
    settings.load_config(f'{path}:some')


def test_a_config_of_ones_own_begins_with_the_defaults(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(OF_ITS_OWN.format('config.train.seed = 3'))
  config = settings.load_config(str(path))
  assert config.train.seed == 3 and config.is_locked
  path = tmp_path / 'mine.txt'
  path.write_text('')
  with pytest.raises(ValueError, match='expected a file of Python'):
    settings.load_config(str(path))


@pytest.mark.parametrize(
  'name', ['gpt2:gpt2-xxl', 'elmo_1b:foo', 'gpt:x', 'gpt_mini:x', 'elmo_tiny:x']
)
def test_an_unknown_size_lists_the_known_ones(name):
  with pytest.raises(ValueError, match="no size '.*': expected one of"):
    settings.load_config(name)


def test_unknown_config_names_the_shipped_ones():
  with pytest.raises(FileNotFoundError, match='bert_tiny'):
    settings.expand_arguments(['main', '--config', 'bert_teeny'])


@pytest.mark.parametrize(
  ('wrong', 'right'),
  [
    ('train.step', 'train.steps'),
    ('optim.learningrate', 'optim.learning_rate'),
    ('seed', 'train.seed'),
  ],
)
def test_misspelt_key_names_the_nearest(wrong, right):
  with pytest.raises(ValueError, match=f'{wrong}.*did you mean {right}'):
    settings.expand_arguments(
      ['main', '--config', 'bert_tiny', f'--config.{wrong}=1']
    )


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'model.gelu': 'elu'}, "model.gelu='elu'.*'erf', 'tanh', 'relu'"),
    ({'model.num_heads': 3}, 'model.embed_dim=128.*multiple'),
    ({'model.max_length': 64}, 'length 128 is longer.*model.max_length=64'),
    (
      {'train.global_batch': 30},
      'global batch 30: expected .*1 x 4',
    ),
    ({'train.micro_batches': 5}, 'train.micro_batches=5 x 4, the devices'),
    ({'eval.global_batch': 30}, 'eval.global_batch=30.*multiple of 4'),
    ({'train.steps': 10, 'train.num_epochs': 1.0}, 'set one, not both'),
    ({'train.steps': -1}, 'train.steps=-1'),
    ({'objective.mask_rate': 1.5}, 'objective.mask_rate=1.5'),
    ({'objective.unit': 'phrase'}, "objective.unit='phrase'"),
    ({'objective.counting': 'some'}, "objective.counting='some'"),
    ({'objective.random_fraction': 0.5}, 'at most 1 in sum'),
    ({'train.phases': ((10, 128, 32, 'anew'),)}, 'anew'),
    ({'train.phases': ()}, 'empty'),
    ({'data.loader': 'torch'}, "data.loader='torch'"),
    ({'model.norm': 'both'}, r"model.norm='both': expected one of .*'pre'"),
    ({'model.positions': 'sines'}, "model.positions='sines'"),
    ({'model.window': -1}, 'model.window=-1'),
    (
      {'model.window': 3, 'model.null_key': True},
      'model.window=3: expected 0 with model.null_key=True',
    ),
    (
      {
        'model.query_key_norm': True,
        'model.attention': 'fused',
        'train.platform': 'tpu',
      },
      'model.query_key_norm=True: expected False with model.attention',
    ),
    (
      {'model.positions': 'rotary', 'model.embed_dim': 6},
      'model.num_heads=2: expected heads of an even width',
    ),
    (
      {'model.positions': 'rotary'},
      "model.num_token_types=2: expected 0 with model.positions='rotary'",
    ),
    (
      {
        'train.objective': 'lm',
        'model.left_to_right': True,
        'objective.first_mask_rate': 0.3,
      },
      "objective.first_mask_rate=0.3: expected None with train.objective='lm'",
    ),
    (
      {
        'train.objective': 'lm',
        'model.left_to_right': True,
        'objective.unit': 'span',
      },
      "objective.unit='span': expected 'piece' with train.objective='lm'",
    ),
    ({'optim.decay_share': 0.0}, 'optim.decay_share=0.0'),
    ({'objective.first_mask_rate': 1.0}, 'objective.first_mask_rate=1.0'),
    (
      {'objective.first_mask_rate': 0.3, 'objective.counting': 'drawn'},
      'objective.first_mask_rate=0.3: expected none with objective.counting',
    ),
    ({'optim.name': 'lion'}, "optim.name='lion': expected one of .*'lamb'"),
    ({'optim.restarts': ((1e-3, 5),)}, 'optim.restarts has 1 entries'),
    ({'train.platform': 'gpus'}, 'train.platform'),
    ({'train.seed': -1}, r'train.seed=-1: expected a number in \[0, 2\*\*31'),
    ({'init.stddev': -1.0}, 'init.stddev=-1.0: expected 0 or more'),
    ({'init.position_stddev': float('nan')}, 'init.position_stddev=nan'),
    ({'optim.beta1': 7.0}, r'optim.beta1=7.0: expected a share in \[0, 1\)'),
    ({'optim.epsilon': -1.0}, 'optim.epsilon=-1.0: expected a positive'),
    ({'optim.clip_norm': -1.0}, 'optim.clip_norm=-1.0: expected a positive'),
    ({'optim.weight_decay': -1.0}, 'optim.weight_decay=-1.0'),
    ({'mesh.rules': ('foo',)}, "mesh.rules=.'foo',.: expected pairs"),
    ({'mesh.rules': (('embed', 'fdsp'),)}, "one or several of .'data', 'fsdp'"),
    ({'mesh.rules': (('embed', ('data', 'x')),)}, 'mesh.rules=.*: expected'),
    ({'train.profile': (5,)}, r'train.profile=\(5,\): expected'),
    (
      {'data.language_exponent': 1.1},
      r'data.language_exponent=1.1: expected a number in \[0, 1\]',
    ),
    (
      {'data.source': 'en=a,de=b,en=a'},
      "data.source 'en=a,de=b,en=a': language 'en' has 'a' twice",
    ),
    (
      {'data.units': 'words'},
      "data.units='words': expected one of .'wordpiece",
    ),
    ({'data.source': 'en=a,b.txt'}, "found 'b.txt', expected NAME=SOURCE"),
    (
      {'data.packed': 'lines'},
      "data.packed='lines': expected one of .None, 'd",
    ),
    (
      {'data.tokenizer': 'train:wordpice:3'},
      "data.tokenizer .*'train:word",
    ),
    (
      {'data.tokenizer': 'train:wordpiece:5'},
      "data.tokenizer 'train:wordpiece:5': expected 50 pieces",
    ),
  ],
)
def test_bad_values_are_named(overrides, message):
  config = settings.with_overrides(settings.load_config('bert_tiny'), overrides)
  with pytest.raises(ValueError, match=message):
    check(config, parts=4)


def test_a_config_of_epochs_says_how_it_is_made_shorter():
  config = settings.with_overrides(
    settings.load_config('word2vec_novels'), {'train.steps': 60}
  )
  expected = 'train.num_epochs=5: set one, not both; .* such as 0.1'
  with pytest.raises(ValueError, match=expected):
    check(config, parts=1)


def test_norms_that_a_kernel_lacks_are_refused_for_a_gpt():
  """It has no window, whose checks come after."""
  config = settings.with_overrides(
    settings.load_config('gpt_tiny'),
    {
      'model.query_key_norm': True,
      'model.attention': 'fused',
      'train.platform': 'cpu',
    },
  )
  with pytest.raises(ValueError, match='model.query_key_norm=True: expected'):
    check(config, parts=1)


@pytest.mark.parametrize(
  ('overrides', 'message'),
  [
    ({'model.lstm_dim': 0}, 'model.lstm_dim=0: expected a positive'),
    ({'model.num_samples': -1}, 'model.num_samples=-1: expected 0 or more'),
    ({'model.cell_clip': 0.0}, 'model.cell_clip=0.0'),
    ({'model.projection_dim': 256}, 'less than model.lstm_dim=256'),
    ({'model.filters': ((51, 99),)}, 'widths up to 50'),
    (
      {'model.filters': ((1, 16), (2, 17))},
      'less than there are model.filters',
    ),
    (
      {'data.tokenizer': 'train:wordpiece:6000'},
      "data.tokenizer='train:wordpiece:6000': expected train:words:N",
    ),
    (
      {'train.phases': ((9, 20, 8, 'continue'), (1, 20, 4, 'continue'))},
      r'global batches of \[4, 8\], expected one',
    ),
  ],
)
def test_bad_values_of_elmo_are_named(overrides, message):
  config = settings.with_overrides(settings.load_config('elmo_tiny'), overrides)
  with pytest.raises(ValueError, match=message):
    check(config, parts=1)


@pytest.mark.parametrize(
  ('name', 'model', 'keys'),
  [
    ('bert_tiny', 'elmo', 'model.cell_clip, model.char_embed_dim'),
    ('elmo_tiny', 'gpt', 'data.packed, init.position_std'),
    (
      'gpt_tiny',
      'bert',
      'data.units, init.self_score, model.global_every, model.layer',
    ),
  ],
)
def test_another_model_needs_other_keys(name, model, keys):
  config = settings.with_overrides(
    settings.load_config(name), {'model.name': model}
  )
  with pytest.raises(ValueError, match=f"'{model}' needs the keys {keys}"):
    families.check_config(config)


def test_overrides_of_a_single_phase_need_a_single_phase():
  config = settings.with_overrides(
    settings.load_config('bert_tiny'),
    {
      'train.phases': ((9, 64, 8, 'continue'), (1, 128, 4, 'continue')),
      'train.steps': 5,
    },
  )
  with pytest.raises(ValueError, match='train.phases has 2'):
    training_phases.resolve_phases(config, {64: 100, 128: 100})


def test_epochs_become_steps():
  config = settings.with_overrides(
    settings.load_config('bert_tiny'), {'train.num_epochs': 2.5}
  )
  (phase,) = training_phases.resolve_phases(config, {128: 100})
  assert phase.steps == 8  # 250 windows in batches of 32


def test_differing_keys_ignore_where_it_runs():
  config = settings.load_config('bert_tiny')
  other = settings.with_overrides(
    config, {'mesh.fsdp': 2, 'train.checkpoint_every': 7, 'train.seed': 3}
  )
  differing = settings.differing_keys(
    settings.flatten(config), settings.flatten(other)
  )
  assert differing == {'train.seed': (0, 3)}


def test_default_workdir_depends_on_every_value():
  config = settings.load_config('bert_tiny')
  name = settings.default_workdir('configs/bert_tiny.py', config)
  assert name.startswith('runs/bert_tiny-')
  other = settings.with_overrides(config, {'train.seed': 1})
  assert settings.default_workdir('configs/bert_tiny.py', other) != name


def test_a_new_key_with_its_old_meaning_leaves_the_default_workdir(monkeypatch):
  config = settings.load_config('bert_tiny')
  name = settings.default_workdir('bert_tiny', config)
  assert config.model.tied and 'model.tied' not in settings.counting(config)
  newer = config.copy_and_resolve_references().unlock()
  newer.data.newer = 'as before'
  monkeypatch.setitem(settings.BEFORE, 'data.newer', 'as before')
  assert settings.default_workdir('bert_tiny', newer) == name
  newer.data.newer = 'otherwise'
  assert settings.default_workdir('bert_tiny', newer) != name


@pytest.mark.parametrize(
  ('text', 'problem'),
  [
    ('', 'Expecting value'),
    ('{}', 'no section model'),
    ('[1]', 'no section model'),
    ('{"model": 3}', 'no section model'),
    ('{"train": {"seed": 1}}', 'no section model'),
  ],
)
def test_a_damaged_config_of_a_workdir_is_named(text, problem, tmp_path):
  assert workdirs.read_config(tmp_path) is None
  (tmp_path / 'config.json').write_text(text)
  message = f'config.json: not the config of a run: .*{problem}'
  with pytest.raises(ValueError, match=message):
    workdirs.read_config(tmp_path)


def test_configs_older_than_a_key_do_not_differ_by_its_default():
  new = settings.flatten(settings.load_config('nnlm_tiny'))
  old = {key: new[key] for key in new if key != 'model.dropout_rate'}
  assert not settings.differing_keys(old, new)
  found = settings.differing_keys(old, new | {'model.dropout_rate': 0.1})
  assert found == {'model.dropout_rate': (0.0, 0.1)}


@pytest.mark.parametrize(
  ('before', 'now'),
  [
    ({'packed': False}, None),
    ({'packed': False, 'packed_texts': 'documents'}, None),
    ({'packed': True}, 'documents'),
    ({'packed': True, 'packed_texts': 'sentences'}, 'sentences'),
    ({'packed': 'sentences'}, 'sentences'),
  ],
)
def test_older_configs_say_in_two_keys_how_rows_are_packed(
  before, now, tmp_path
):
  new = settings.flatten(settings.load_config('gpt_tiny'))
  del new['data.packed']
  old = new | {f'data.{key}': value for key, value in before.items()}
  assert not settings.differing_keys(old, new | {'data.packed': now})
  text = json.dumps({'model': {'name': 'gpt'}, 'data': before})
  (tmp_path / 'config.json').write_text(text)
  assert workdirs.read_config(tmp_path).data.to_dict() == {'packed': now}


def test_a_config_that_lacks_a_key_is_refused_by_its_name():
  new = settings.flatten(settings.load_config('bert_tiny'))
  old = {key: new[key] for key in new if key != 'objective.unit'}
  found = settings.differing_keys(old, new)
  assert found == {'objective.unit': (None, 'piece')}


def test_without_tensorflow_the_other_loader_is_named(monkeypatch):
  monkeypatch.setitem(sys.modules, 'tensorflow', None)
  config = settings.load_config('bert_tiny')
  with pytest.raises(ValueError, match="data.loader='tf': expected 'plain'"):
    settings.check_common(config)
  plain = settings.with_overrides(config, {'data.loader': 'plain'})
  settings.check_common(plain)
