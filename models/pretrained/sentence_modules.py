"""How a folder of sentence-transformers makes vectors of sentences.

Its modules.json lists what the texts go through: the Transformer, a Pooling of
its last layer, perhaps Normalize. Each module's settings are in a folder. Both
forms are read: that of versions up to 5, and that of 6, which names modules and
settings in another way. Whatever would change the vectors and is not known here
is a problem of the weights.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from models.pretrained import config_files
from models.pretrained.weights import MODULES_FILE, SentenceForm, Weights

PACKAGE = 'sentence_transformers.'  # begins the type of each of its modules
# The settings of the Transformer, by the name of the first that exists.
TRANSFORMER_FILES = (
  'sentence_bert_config.json',
  'sentence_roberta_config.json',
  'sentence_distilbert_config.json',
  'sentence_camembert_config.json',
  'sentence_albert_config.json',
  'sentence_xlm-roberta_config.json',
  'sentence_xlnet_config.json',
)
MODEL_FILE = 'config_sentence_transformers.json'
# Flags of Pooling up to version 5 -> `pooling_mode` of version 6.
FLAGS = {
  'pooling_mode_cls_token': 'cls',
  'pooling_mode_mean_tokens': 'mean',
  'pooling_mode_max_tokens': 'max',
  'pooling_mode_mean_sqrt_len_tokens': 'mean_sqrt_len_tokens',
  'pooling_mode_weightedmean_tokens': 'weightedmean',
  'pooling_mode_lasttoken': 'lasttoken',
}
POOLS = ('cls', 'mean')  # known here
_MODULES = ['Transformer', 'Pooling', 'Normalize']
# Settings that have one value here, where they are there at all.
_TRANSFORMER = {
  'transformer_task': 'feature-extraction',
  'modality_config.text.method': 'forward',
  'modality_config.text.method_output_name': 'last_hidden_state',
  'module_output_name': 'token_embeddings',
}
_NORMALIZE = {
  'module_input_name': 'sentence_embedding',
  'module_output_name': 'sentence_embedding',
}
_MODEL = {'model_type': 'SentenceTransformer', 'truncate_dim': None}
_CURE = (
  f'a copy of the folder without {MODULES_FILE} is read as a plain encoder'
)
_PROMPTS = 'prompts'  # key of `Weights.notes`


def add_form(weights: Weights) -> Weights:
  """Returns open weights with the form of their sentences, or the problems.

  Prompts that are set before texts only where they are asked for by name are
  told in the notes. Raises ValueError for damaged files.
  """
  folder = weights.folder
  file = folder / MODULES_FILE
  modules = config_files.read(file, list)
  types = [str(config_files.look_up(module, 'type')) for module in modules]
  kinds = [name.rpartition('.')[2] for name in types]
  if kinds not in (_MODULES[:2], _MODULES) or not all(
    name.startswith(PACKAGE) for name in types
  ):
    known = ', '.join(
      kind if name.startswith(PACKAGE) else name
      for kind, name in zip(kinds, types, strict=True)
    )
    return _with_problems(
      weights,
      f'{file.name} has the modules {known}, expected Transformer, Pooling and'
      ' perhaps Normalize',
    )
  paths = [str(module.get('path', '')) for module in modules]
  settings = _read(folder, f'{paths[1] or "1_Pooling"}/config.json')
  if settings is None:
    return _with_problems(
      weights,
      f'{paths[1] or "1_Pooling"}/config.json is missing, which'
      f' {file.name} names',
    )
  transformer = next(
    (
      (name, found)
      for name in TRANSFORMER_FILES
      if (found := _read(folder, name))
    ),
    (TRANSFORMER_FILES[0], {}),
  )
  of_model = _read(folder, MODEL_FILE) or {}
  modes = _modes(settings)
  problems = [*_different(*transformer, _TRANSFORMER)]
  problems += _different(MODEL_FILE, of_model, _MODEL)
  if paths[0]:
    problems.append(
      f'{file.name} has the Transformer in the folder {paths[0]}, expected it'
      ' beside the file: copy its files there'
    )
  if len(paths) == 3 and paths[2]:
    name = f'{paths[2]}/config.json'
    problems += _different(name, _read(folder, name) or {}, _NORMALIZE)
  if len(modes) != 1 or modes[0] not in POOLS:
    problems.append(
      f'{paths[1]}/config.json pools by {", ".join(map(str, modes))}, expected'
      f' {" or ".join(POOLS)}'
    )
  prompts, prompt, found = _prompt(of_model)
  problems += found
  if prompt and settings.get('include_prompt') is False:
    problems.append(
      f'{paths[1]}/config.json has include_prompt False, expected True: the'
      f' tokens of the prompt {prompt!r} are pooled with the others here'
    )
  if problems:
    return _with_problems(weights, *problems)
  length = transformer[1].get('max_seq_length')
  if not config_files.is_count(length):
    tokenizer = _read(folder, 'tokenizer_config.json') or {}
    length = tokenizer.get('model_max_length')
  most = getattr(weights.model, 'max_length', 0)
  is_cut = config_files.is_count(length) and length < most
  form = SentenceForm(
    modes[0],
    len(kinds) == 3,
    prompt,
    transformer[1].get('do_lower_case') is True,
    length if is_cut else None,
  )
  notes = dict(weights.notes)
  if prompts:
    notes[_PROMPTS] = (
      f'{MODEL_FILE} has prompts for {", ".join(prompts)}, which are set before'
      ' texts only by who asks for them: write them into the text'
    )
  return weights._replace(sentence_form=form, notes=notes)


def _with_problems(weights: Weights, *problems: str) -> Weights:
  cured = [f'{problem}: {_CURE}' for problem in problems]
  return weights._replace(problems=(*weights.problems, *cured))


def _read(folder: epath.Path, name: str) -> dict[str, Any] | None:
  """Returns the settings of a file; None if it is missing."""
  file = folder / name
  return config_files.read(file) if file.exists() else None


def _different(
  name: str, settings: Mapping[str, Any], only: Mapping[str, Any]
) -> Iterator[str]:
  for key, value in only.items():
    found = config_files.look_up(settings, key)
    if found not in (None, value):
      expected = 'nothing' if value is None else repr(value)
      yield f'{name} has {key} {found!r}, expected {expected}'


def _modes(settings: Mapping[str, Any]) -> list[Any]:
  """Returns the modes of a Pooling, which are set side by side."""
  if 'pooling_mode' in settings:
    mode = settings['pooling_mode']
    return mode if isinstance(mode, list) else [mode]
  chosen = [
    FLAGS.get(key, key)
    for key, value in settings.items()
    if key.startswith('pooling_mode_') and value
  ]
  return chosen or ['mean']  # as sentence-transformers


def _prompt(of_model: Mapping[str, Any]) -> tuple[list[str], str, list[str]]:
  """Returns the names of optional prompts, the default prompt, problems."""
  prompts = of_model.get('prompts') or {}
  if not isinstance(prompts, dict) or not all(
    isinstance(text, str | None) for text in prompts.values()
  ):
    return [], '', [f'{MODEL_FILE} has {_PROMPTS} that are no texts by name']
  default = of_model.get('default_prompt_name')
  if default is not None and default not in [*prompts]:
    problem = (
      f'{MODEL_FILE} has default_prompt_name {default!r}, expected one of'
      f' {", ".join(prompts) or "no prompts"}'
    )
    return [], '', [problem]
  others = [name for name, text in prompts.items() if text and name != default]
  return sorted(others), prompts.get(default) or '', []
