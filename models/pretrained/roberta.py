"""RoBERTa's weights (Liu et al. 2019): a BERT under other names.

Its positions begin behind the number of the padding symbol, and its only type
of tokens is that of every token: here the rows before are left out, and the
type is added to each position. Its classifier of texts is BERT's pooler and
classifier.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from models import bert as bert_model
from models.pretrained import bert, config_files, strict
from models.pretrained.strict import Entry
from models.pretrained.weights import Weights

MODEL_TYPE = 'roberta'
# How RoBERTa's names begin -> those of Hugging Face's BERT, and back.
PARTS = (
  ('classifier.dense.', 'bert.pooler.dense.'),
  ('classifier.out_proj.', 'classifier.'),
  ('lm_head.dense.', 'cls.predictions.transform.dense.'),
  ('lm_head.layer_norm.', 'cls.predictions.transform.LayerNorm.'),
  ('lm_head.', 'cls.predictions.'),
  ('roberta.', 'bert.'),
)
POSITIONS = 'embeddings.position_embeddings.weight'
TYPES = 'embeddings.token_type_embeddings.weight'
POOLER = 'pooler.dense.'
# transformers, configuration_roberta.py.
DEFAULTS = {'pad_token_id': 1, 'type_vocab_size': 2, 'hidden_act': 'gelu'}
CLASS, ITS_CLASS = 'Bert', 'Roberta'  # how names of classes begin
CLASSIFIER = 'RobertaForSequenceClassification'
CHOICE = 'RobertaForMultipleChoice'  # with the names of BERT


def from_hugging_face(
  folder: epath.Path, config: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Weights:
  """Opens a RoBERTa of Hugging Face: its config.json and its arrays."""
  known = DEFAULTS | dict(config)
  renamed, dropped = {}, []
  names = {name: strict.unwrapped(name) for name in entries}
  has_own = any(name.startswith('classifier.dense.') for name in names.values())
  for name, entry in entries.items():
    plain = names[name]
    # Older files have both; only the classifier's is computed with.
    if has_own and plain.removeprefix('roberta.').startswith(POOLER):
      dropped.append(name)
      continue
    renamed[_renamed(plain, PARTS)] = entry
  problems = _fold(known, renamed)
  if known['hidden_act'] != 'gelu' and 'cls.predictions.bias' in renamed:
    problems.append(
      f"hidden_act is {known['hidden_act']!r}, expected 'gelu', which the layer"
      ' before the softmax always has'
    )
  architectures = known.get('architectures')
  if isinstance(architectures, list):
    known['architectures'] = [
      str(name).replace(ITS_CLASS, CLASS) for name in architectures
    ]
  found = bert.from_hugging_face(folder, known, renamed, num_token_types=0)
  lines = []
  for line in found.problems:  # in the words of the file
    for own, theirs in PARTS[2:5]:
      line = line.replace(f' {theirs}', f' {own}')
    lines.append(line)
  return found._replace(
    problems=(*problems, *lines),
    set_aside=(*found.set_aside, *dropped),
  )


def _fold(config: dict[str, Any], entries: dict[str, Entry]) -> list[str]:
  """Cuts the table of positions and adds the type to it; returns problems.

  The number of positions in the config is that of those left.
  """
  problems = []
  pad, count, types = (
    config.get(key)
    for key in ('pad_token_id', 'max_position_embeddings', 'type_vocab_size')
  )
  if types != 1:
    problems.append(
      f'type_vocab_size is {types!r}, expected 1: the tokenizer of RoBERTa'
      ' tells no types, and further rows would be lost'
    )
  if type(pad) is not int or pad < 0:
    return [*problems, f'pad_token_id is {pad!r}, expected a number from 0 on']
  if not config_files.is_count(count):
    return problems  # which BERT's reader names
  first = pad + 1  # of the rows that a text has
  if count <= first:
    return [
      *problems,
      f'max_position_embeddings is {count}, expected more than pad_token_id'
      f' ({pad}) + 1: the positions of a text begin there',
    ]
  config['max_position_embeddings'] = count - first
  places, kind = (
    next(
      (name for name in entries if name.removeprefix('bert.') == wanted), None
    )
    for wanted in (POSITIONS, TYPES)
  )
  width = config.get('hidden_size')
  whole = {places: (count, width), kind: (1, width)}
  for name, shape in whole.items():
    if name is None:
      continue
    if entries[name].shape != shape:
      problems.append(
        f'another shape: {name} is {entries[name].shape}, expected {shape}'
      )
  if kind is None:
    problems.append(f'missing: {TYPES} (1, {width})')
  if problems or places is None:
    entries.pop(kind, None)
    return problems
  table, row = entries[places], entries[kind]

  def read() -> np.ndarray:
    rows = table.read()[first:].astype(np.float32)
    return rows + row.read().astype(np.float32)

  entries[places] = Entry((count - first, width), table.dtype, read)
  del entries[kind]
  return problems


class Form(NamedTuple):
  """How a model of BERT's form is written as a RoBERTa.

  Attributes:
    pad_id: of the padding symbol; as many rows of positions stand first, and
      one more.
    choice: a classifier is of one choice of several, not of texts.
  """

  pad_id: int
  choice: bool = False

  def to_hugging_face(
    self, params: Mapping, model: bert_model.Bert
  ) -> tuple[str, dict[str, np.ndarray]]:
    """Returns Hugging Face's class name, and name -> array in its files.

    See `bert.to_hugging_face`. Rows of positions that no text has are 0, and so
    is the type of tokens.
    """
    name, found = bert.to_hugging_face(params, model)
    name = ITS_CLASS + name.removeprefix(CLASS)
    parts = [(theirs, own) for own, theirs in PARTS]
    if name != CLASSIFIER or self.choice:
      parts = parts[2:]  # without those of a classifier of texts
    arrays = {}
    for plain, array in found.items():
      if plain.endswith(POSITIONS):
        rows = np.zeros((self.pad_id + 1, array.shape[1]), array.dtype)
        array = np.concatenate([rows, array])
      arrays[_renamed(plain, parts)] = array
    return CHOICE if name == CLASSIFIER and self.choice else name, arrays

  def to_config(self, model: bert_model.Bert) -> dict[str, Any]:
    """Returns the Hugging Face config of a model."""
    config = bert.to_config(model)
    config['max_position_embeddings'] += self.pad_id + 1
    return config | {'model_type': MODEL_TYPE, 'pad_token_id': self.pad_id}


def is_like(model: bert_model.Bert) -> bool:
  """Returns whether a RoBERTa computes what a model of BERT's form does."""
  return (
    not model.num_token_types
    and 'nsp' not in model.heads
    and ('mlm' not in model.heads or model.gelu == 'erf')
  )


def _renamed(name: str, parts: Iterable[tuple[str, str]]) -> str:
  """Returns a name that begins in another way: by the first part that fits."""
  for old, new in parts:
    if name.startswith(old):
      return new + name.removeprefix(old)
  return name
