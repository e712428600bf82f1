"""Finding, checking, resolving and comparing configs."""

import copy
import difflib
import functools
import hashlib
import importlib.util
import json
import math
import pathlib
import re
import traceback
from collections.abc import Collection, Mapping, Sequence

import ml_collections

import configs
from configs import base, variants
from data.text import languages
from train.run import training_phases

# A value of a config: a number, a text, a tuple of values; None: not set.
Value = bool | int | float | str | Sequence['Value'] | None
FlatConfig = Mapping[str, Value]  # 'section.key' -> value
Grid = Mapping[str, Sequence[Value]]  # 'section.key' -> values to try

# Key -> its values, checked in the configs that have the key.
CHOICES = {
  'train.platform': ('auto', 'cpu', 'gpu', 'tpu'),
  'data.loader': ('tf', 'plain'),
  'data.packed': (None, 'documents', 'sentences'),
  'model.dtype': ('float32', 'bfloat16'),
  'model.gelu': ('erf', 'tanh', 'relu'),
  'model.attention': ('auto', 'plain', 'fused'),
  'model.norm': ('post', 'pre'),
  'model.positions': ('learned', 'rotary'),
  'objective.unit': training_phases.UNITS,
  'objective.counting': ('exact', 'drawn'),
}
# Section -> what its numbers must be -> keys; those that a config has are
# checked where they have a value.
AT_LEAST_0 = ('0 or more', lambda number: 0 <= number < math.inf)
POSITIVE = ('a positive number', lambda number: 0 < number < math.inf)
RATE = ('a share in [0, 1)', lambda number: 0 <= number < 1)
SHARE = ('a share in (0, 1)', lambda number: 0 < number < 1)
UNIT = ('a number in [0, 1]', lambda number: 0 <= number <= 1)
SEED = ('a number in [0, 2**31)', lambda number: 0 <= number < 2**31)
NUMBERS = {
  'train': {
    POSITIVE: 'micro_batches log_every hang_minutes eval_every checkpoint_every'
    ' keep_checkpoints steps num_epochs global_batch patience peak_tflops',
    AT_LEAST_0: 'plateau',
    SEED: 'seed',
  },
  'model': {
    POSITIVE: 'num_layers embed_dim num_heads mlp_dim max_length lstm_dim'
    ' projection_dim char_embed_dim cell_clip projection_clip order rotary_base'
    ' local_rotary_base global_every layer_norm_epsilon',
    AT_LEAST_0: 'num_highway num_samples unrolled_layers window'
    ' num_token_types hidden_dim',
    RATE: 'dropout_rate attention_dropout_rate',
  },
  'data': {
    SHARE: 'held_out',
    UNIT: 'language_exponent',
    POSITIVE: 'train_limit eval_limit',
  },
  'objective': {SHARE: 'mask_rate first_mask_rate'},
  'optim': {
    RATE: 'beta1 beta2 warmup_fraction average',
    POSITIVE: 'epsilon clip_norm',
    SHARE: 'decay_share',
    AT_LEAST_0: 'learning_rate warmup_steps weight_decay',
  },
  'eval': {POSITIVE: 'global_batch max_windows draws'},
  'init': {
    AT_LEAST_0: 'stddev position_stddev self_score',
    POSITIVE: 'num_layers',
  },
  'task': {
    POSITIVE: 'max_length doc_stride max_question max_answer n_best bilstm_dim',
    AT_LEAST_0: 'lm_weight soft_classes bilstm_layers mix_l2 word_dim',
    RATE: 'mix_dropout',
  },
  'distill': {
    POSITIVE: 'temperature relation_heads relation_layer',
    UNIT: 'label_weight',
    AT_LEAST_0: 'soft_weight mlm_weight cosine_weight relation_weight',
  },
}

# The values of a key in configs that were written before it.
BEFORE = {
  'model.dropout_rate': 0.0,  # of nnlm
  'model.tied': True,
  'optim.decay_share': 0.2,
  'objective.first_mask_rate': None,
  **{f'model.{key}': value for key, value in base.form().items()},
  'data.text_field': 'text',
  'data.packed': None,
  'task.long_text': 'head',
  'distill.relation_weight': 0.0,
  'distill.relation_heads': 48,
  'distill.relation_layer': None,
}

# A run may continue with other values of these: training computes the same
# (init.new_rows is used at the first step only).
FREE_KEYS = [
  'data.cache',
  'data.folder',
  'data.loader',
  'init.new_rows',
  'mesh.data',
  'mesh.fsdp',
  'mesh.rules',
  'mesh.tensor',
  'model.attention',
  'model.unrolled_layers',
  'objective.classes',
  'train.checkpoint_every',
  'train.deterministic',
  'train.eval_every',
  'train.hang_minutes',
  'train.keep_checkpoints',
  'train.peak_tflops',
  'train.platform',
  'train.profile',
  'train.reset_streams',
  'train.trackers',
]
# These may differ too, if the learning rates of the steps already done do not.
SCHEDULE_KEYS = [
  'train.phases',
  'train.steps',
  'train.num_epochs',
  'train.global_batch',
  'optim.decay_share',
  'optim.restarts',
]


def config_path(name: str) -> pathlib.Path:
  """Returns the file of a config, given by path or by a shipped name."""
  shipped_folder = pathlib.Path(configs.__file__).parent
  shipped = shipped_folder / f'{name}.py'
  if re.fullmatch(r'\w+', name) and shipped.exists():
    return shipped
  if pathlib.Path(name).is_file():
    return pathlib.Path(name)
  raise FileNotFoundError(
    f'--config {name}: no such file, and no shipped config of that name;'
    f' shipped are {", ".join(shipped_names())}{near(name, shipped_names())}'
  )


def near(name: str, known: Sequence[str]) -> str:
  """Returns words for a message on the known names that are nearly `name`."""
  found = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
  return f'; did you mean {" or ".join(found)}?' if found else ''


def shipped_names() -> list[str]:
  """Returns the bare names of the shipped experiments."""
  not_experiments = ('__init__', 'base', 'mesh_rules', 'variants')
  return sorted(
    path.stem
    for path in pathlib.Path(configs.__file__).parent.glob('*.py')
    if path.stem not in not_experiments
  )


def load_config(name: str) -> ml_collections.ConfigDict:
  """Returns a config by `NAME[:arg]`, as the command line would load it.

  Raises ValueError, with file and line or key, if the file makes no config.
  """
  name, _, arg = name.partition(':')
  path = config_path(name).absolute()
  if path.suffix != '.py':
    raise ValueError(f'--config {name}: expected a file of Python, NAME.py')
  spec = importlib.util.spec_from_file_location(f'config_{path.stem}', path)
  try:
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(*[arg] if arg else [])
    flat = flatten(config)
  except Exception as error:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == spec.origin]
    if isinstance(error, SyntaxError):
      lines.append(error.lineno)
    where = f', line {lines[-1]}' if lines else ''
    text = ' '.join(str(error).split())
    if not isinstance(error, ValueError):
      text = f'{type(error).__name__}: {text}'
    if unknown := re.search(r'Key "(.+?)" does not exist', text):  # locked
      text = unknown_key(unknown[1], sorted(variants.all_keys()), '')
    if not lines:
      text += '; expected a function get_config(arg) that returns a ConfigDict'
    raise ValueError(f'{path}{where}: {text}') from error
  defaults = variants.get_defaults(config)
  known = variants.all_keys() if defaults is None else set(flatten(defaults))
  if defaults is not None and (missing := known - set(flat)):
    raise ValueError(
      f'{path}: has no {", ".join(sorted(missing)[:9])}: begin with a function'
      ' of configs/base.py or configs/sections, of such a model'
    )
  for key in sorted(flat.keys() - known):
    raise unknown_key(key, sorted(known), f'{path}: ')
  return config.lock()


def expand_arguments(argv: Sequence[str]) -> list[str]:
  """Turns config names on a command line into paths, and checks keys."""
  argv = list(argv)
  named = None
  for i, argument in enumerate(argv):
    flag, equals, value = argument.partition('=')
    if flag not in ('--config', '-config'):
      continue
    if not equals:
      if i + 1 == len(argv):
        raise ValueError('--config: a name or a path is missing')
      value = argv[i + 1]
    name, colon, arg = value.partition(':')
    path = f'{config_path(name)}{colon}{arg}'
    if equals:
      argv[i] = f'{flag}={path}'
    else:
      argv[i + 1] = path
    named = value
  if named is None:
    return argv
  keys = sorted(flatten(load_config(named)))
  for argument in argv:
    match = re.match(r'--?(?:no)?config\.([^=]+)', argument)
    if match and match[1] not in keys:
      raise unknown_key(match[1], keys)
  return argv


def check_filled(config: ml_collections.ConfigDict | None) -> None:
  """Checks that only keys which may be empty, by `placeholder`, are None."""
  for section, keys in (config or {}).items():
    for key, value in keys.items(preserve_field_references=True):
      if value is None:
        raise ValueError(
          f'--config.{section}.{key}=None: expected a value, as this key may'
          ' not be empty'
        )


def unknown_key(
  key: str, keys: Sequence[str], where: str = '--config.'
) -> ValueError:
  """Returns the error for a key that no config has."""
  leaf = [known for known in keys if known.endswith('.' + key)]
  near = leaf or difflib.get_close_matches(key, keys, n=3, cutoff=0.5)
  hint = f'; did you mean {" or ".join(near)}?' if near else ''
  return ValueError(
    f'{where}{key}: there is no such key{hint}'
    ' (configs/base.py and configs/sections list all of them)'
  )


def flatten(
  config: Mapping | ml_collections.ConfigDict, prefix: str = ''
) -> dict[str, Value]:
  """Returns {'section.key': value}; references resolved, tuples as lists."""
  flat = {}
  for key in config:
    value = config[key]
    if isinstance(value, Mapping | ml_collections.ConfigDict):
      flat |= flatten(value, f'{prefix}{key}.')
    else:
      flat[prefix + key] = json.loads(json.dumps(value))
  return flat


def as_json(config: ml_collections.ConfigDict) -> str:
  """Returns the config as readable JSON, the same for equal configs."""
  return _as_json(flatten(config))


def _as_json(flat: FlatConfig) -> str:
  nested: dict[str, dict[str, Value]] = {}
  for path, value in flat.items():
    section, _, key = path.rpartition('.')
    nested.setdefault(section, {})[key] = value
  return json.dumps(nested, indent=2, sort_keys=True)


def counting(config: ml_collections.ConfigDict) -> FlatConfig:
  """Returns the keys that tell runs apart, key -> value.

  A key that is newer than other configs counts only with a value that they do
  not mean: a run is found again by a version with new keys.
  """
  return {
    key: value
    for key, value in flatten(config).items()
    if key not in BEFORE or value != BEFORE[key]
  }


def default_workdir(name: str, config: ml_collections.ConfigDict) -> str:
  """Returns runs/<config>-<8 hex of the resolved config>."""
  stem = pathlib.Path(name.partition(':')[0]).stem
  digest = hashlib.sha256(_as_json(counting(config)).encode()).hexdigest()
  return f'runs/{stem}-{digest[:8]}'


def expect(
  config: ml_collections.ConfigDict, ok: bool, key: str, expected: str
) -> None:
  """Checks `section.key` of a config: ValueError unless `ok`."""
  if not ok:
    section, _, name = key.partition('.')
    found = getattr(getattr(config, section), name)
    raise ValueError(f'{key}={found!r}: expected {expected}')


def check_batches(
  config: ml_collections.ConfigDict, sizes: Mapping[str, int], parts: int
) -> None:
  """Checks that batches divide into micro-batches and over `parts` devices.

  `sizes` maps a name for messages to the size of a training batch.
  """
  scored = config.eval.global_batch
  if scored <= 0 or scored % parts:
    raise ValueError(
      f'eval.global_batch={scored}: expected a multiple of {parts}, the devices'
      ' over which the mesh splits a batch'
    )
  micro_batches = config.train.micro_batches
  for name, size in sizes.items():
    if size <= 0 or size % (micro_batches * parts):
      raise ValueError(
        f'{name}: expected a multiple of train.micro_batches={micro_batches} x'
        f' {parts}, the devices over which the mesh splits a batch'
      )


def check_common(config: ml_collections.ConfigDict) -> None:
  """Checks the keys that every run has."""
  from train.engine import optim, sharding

  ensure = functools.partial(expect, config)
  for section, kinds in NUMBERS.items():
    values = config[section] if section in config else {}
    for (expected, is_right), keys in kinds.items():
      for key in keys.split():
        value = values[key] if key in values else None
        ensure(value is None or is_right(value), f'{section}.{key}', expected)
  flat = flatten(config)
  for key, known in {**CHOICES, 'optim.name': optim.OPTIMIZERS}.items():
    ensure(key not in flat or flat[key] in known, key, f'one of {known}')
  ensure(
    config.optim.name != 'muon' or 'num_heads' in config.model,
    'optim.name',
    'another: muon updates the matrices of transformer layers, and a model of'
    f' the family {config.model.name} has none',
  )
  ensure(
    config.data.loader == 'plain' or importlib.util.find_spec('tensorflow'),
    'data.loader',
    "'plain', whose batches are the same, as TensorFlow is not installed",
  )
  ensure(
    isinstance(config.mesh.rules, tuple | list)
    and all(_is_rule(rule, sharding.AXES) for rule in config.mesh.rules),
    'mesh.rules',
    f'pairs of an axis of arrays and None, one or several of {sharding.AXES}',
  )
  if config.train.trackers:
    from train.run import trackers

    trackers.check_trackers(config.train.trackers)


def _is_rule(rule: Value, known: Sequence[str]) -> bool:
  if not isinstance(rule, tuple | list) or len(rule) != 2:
    return False
  axes = rule[1] if isinstance(rule[1], tuple | list) else (rule[1],)
  return all(axis is None or axis in known for axis in axes)


def check_pretraining(config: ml_collections.ConfigDict) -> None:
  """Checks a config of pre-training, but for the family's own keys."""
  from data.vocabulary import tokenization
  from train.engine.optim import make_schedule
  from train.run import tracing

  check_common(config)
  try:
    languages.split(config.data.source)
    if config.data.folder is None:
      tokenization.parse_training(config.data.tokenizer)
  except ValueError as error:  # 'source ...' or 'tokenizer ...'
    raise ValueError(f'data.{error}') from None
  phases = training_phases.check_phases(config)
  make_schedule(config.optim, phases)  # checks the numbers
  for phase in phases:
    if phase.length < 8:
      raise ValueError(f'train.phases: length {phase.length} is under 8')
  tracing.check_profile(config.train.profile)


def check_transformer(config: ml_collections.ConfigDict) -> None:
  """Checks the keys of BERT and GPT."""
  model = config.model
  ensure = functools.partial(expect, config)
  ensure(
    model.embed_dim % model.num_heads == 0,
    'model.embed_dim',
    f'a multiple of model.num_heads={model.num_heads}',
  )
  ensure(
    not (model.attention == 'fused' and model.get('null_key')),
    'model.attention',
    "'auto' or 'plain' with model.null_key=True: the kernel has no null key",
  )
  if 'positions' in model:
    check_form(config)
  training_phases.check_lengths(config)


def check_form(config: ml_collections.ConfigDict) -> None:
  """Checks the keys of `configs.base.form`."""
  model, ensure = config.model, functools.partial(expect, config)
  ensure(
    model.positions == 'learned' or not model.embed_dim // model.num_heads % 2,
    'model.num_heads',
    'heads of an even width, whose numbers rotary positions turn in pairs',
  )
  # The GPU's has them; what 'auto' finds is not known yet.
  is_forced = model.attention == 'fused' and (
    config.train.platform in ('tpu', 'cpu')
  )
  ensure(
    not (model.query_key_norm and is_forced),
    'model.query_key_norm',
    "False with model.attention='fused': a TPU's kernel has no such norms",
  )
  ensure(
    not (model.get('window') and model.get('null_key')),
    'model.window',
    '0 with model.null_key=True: a null key is near to no position',
  )


def check_masks(config: ml_collections.ConfigDict) -> None:
  """Checks the keys of masked tokens."""
  from data.store import units

  objective, kinds = config.objective, units.KINDS
  ensure = functools.partial(expect, config)
  ensure(
    0 <= objective.mask_fraction
    and 0 <= objective.random_fraction
    and objective.mask_fraction + objective.random_fraction <= 1,
    'objective.mask_fraction',
    'with objective.random_fraction at most 1 in sum',
  )
  ensure(config.data.units in kinds, 'data.units', f'one of {kinds}')
  ensure(
    objective.first_mask_rate is None or objective.counting == 'exact',
    'objective.first_mask_rate',
    "none with objective.counting='drawn'",
  )


def packed_texts(packed: str | bool | None, texts: str | None) -> str | None:
  """Returns `data.packed` of a config that may be an older one.

  Args:
    packed: its value; True or False in older configs.
    texts: in some older configs, what `data.packed_texts` said beside it.
  """
  if isinstance(packed, bool):
    return (texts or 'documents') if packed else None
  return packed


def differing_keys(
  old: FlatConfig,
  new: FlatConfig,
  free: Collection[str] = FREE_KEYS,
) -> dict[str, tuple[Value, Value]]:
  """Returns {key: (old, new)} of two flat configs, without free keys.

  Keys that the old config alone has do not count: its family did not read them.
  """
  old = {**BEFORE, **old}
  if old['model.positions'] == 'rotary':  # has none, whatever the key says
    old['model.num_token_types'] = new.get('model.num_token_types')
  old['data.packed'] = packed_texts(
    old['data.packed'], old.get('data.packed_texts')
  )
  return {
    key: (old.get(key), new[key])
    for key in sorted(new)
    if old.get(key) != new[key] and key not in free
  }


def describe_differing(differing: Mapping[str, tuple[Value, Value]]) -> str:
  """Returns the lines of a message on the result of `differing_keys`."""
  return ''.join(
    f'\n  {key}: {old!r} there, {new!r} here'
    for key, (old, new) in differing.items()
  )


def with_overrides(
  config: ml_collections.ConfigDict, overrides: FlatConfig
) -> ml_collections.ConfigDict:
  """Returns a copy with {'section.key': value} replaced, for programs."""
  config = copy.deepcopy(config)
  known = sorted(flatten(config))
  for key in overrides:
    if key not in known:
      raise unknown_key(key, known)
  config.update_from_flattened_dict(dict(overrides))
  return config
