"""The rows that a model reads of texts, and their pre-training's targets.

Nothing here frames, masks or shifts a text by itself: rows are those of
`data.inputs.framing`, which fine-tuning reads, and masks and targets those of
the objective that a run of this config trains with.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import ml_collections
import numpy as np

from data.examples import transforms
from data.inputs import framing
from data.inputs.features import Features
from data.store import units
from data.tasks.examples import TextExample, TextTask
from data.vocabulary import characters, words
from train.architectures.architecture import TextObjective, Vocabulary
from train.host.files import Json
from train.run import settings, training_phases, workdirs
from train.vectors.trained_model import TrainedModel

LONGEST = 1 << 20  # tokens; framing cuts nothing, `_check_length` refuses
DEFAULT_SPLIT = 'marks'  # of words, where no vocabulary says how
_LETTERS = {
  characters.SENTENCE_BEGIN_ID: 'begin of sentence',
  characters.SENTENCE_END_ID: 'end of sentence',
  characters.WORD_BEGIN_ID: 'begin of word',
  characters.WORD_END_ID: 'end of word',
}

# Prefix of the keys of a batch of an ELMo -> the step through its text.
_WAYS = {'': 1, 'reverse_': -1}


class InputRow(NamedTuple):
  """A row of inputs, token by token.

  Attributes:
    title: of the row.
    lines: name -> a value for each token; None where it has none.
    parts: 'symbol', 'first' or 'second' (text), for each token.
    strong: whether a token is one of those to look at, for each token.
    notes: facts about the whole row.
  """

  title: str
  lines: Mapping[str, Sequence[str | int | None]]
  parts: Sequence[str]
  strong: Sequence[bool]
  notes: Sequence[str] = ()

  def as_dict(self) -> dict[str, Json]:
    """Returns the row for JSON."""
    return {
      'title': self.title,
      **{name: list(values) for name, values in self.lines.items()},
      'part': list(self.parts),
      'notes': list(self.notes),
    }


class Masks(NamedTuple):
  """What pre-training is to hide and to predict.

  Attributes:
    seed: of the draws.
    follows: the second text really follows the first.
  """

  seed: int = 0
  follows: bool = True


def describe(
  found: TrainedModel,
  texts: Sequence[str],
  *,
  both_orders: bool = False,
  masks: Masks | None = None,
) -> list[InputRow]:
  """Returns the rows of a text or two.

  With `both_orders` a GPT has the row of (b, a) too, as for tasks whose texts
  have no order (Radford et al. 2018, figure 1). With `masks` there is a row of
  what pre-training hides and predicts. Raises ValueError for a text longer than
  the model reads, and one of no token.
  """
  form = framing.FORMS[found.family.form]
  if both_orders and not (form.left_to_right and len(texts) == 2):
    raise ValueError(
      '--both_orders: expected two texts and a GPT or GPT-2, which reads them'
      f' in both orders; found {len(texts)} and a {found.name}'
    )
  features = _frame(found, texts, both_orders)
  rows = [
    _framed_row(found, texts, features, number)
    for number in range(features.num_rows)
  ]
  if found.reads_words:
    rows += _spelled(features)
  if masks is None:
    return rows
  if not (masks.follows or form.token_types):
    raise ValueError(
      f'--not_next: a {found.name} predicts no next sentences, expected a bert'
    )
  config, source = _pretraining_config(found)
  if found.reads_words:
    return [*rows, *_both_directions(found, config, texts)]
  if form.token_types:
    return [*rows, _of_pretraining(found, config, source, features, masks)]
  return [*rows, _next_tokens(found, config, texts)]


def _frame(
  found: TrainedModel, texts: Sequence[str], both_orders: bool
) -> Features:
  task = TextTask(
    name='shown',
    title='Texts of the command line',
    kind='classification',
    files={},
    rows=lambda file, split: (),
    labels=('0', '1'),
    num_texts=len(texts),
    symmetric=both_orders,
  )
  features = framing.encode(
    framing.classes,
    task,
    [TextExample('texts', tuple(texts), None)],
    None if found.reads_words else found.tokenizer,
    LONGEST,
    form=found.family.form,
    split=_split_of(found),
  )
  symbols = len(texts) + 1
  if len(texts) > 1 and not found.reads_words:
    form = framing.FORMS[found.family.form]
    symbols = len(framing.symbols_of(found.tokenizer, form).ids)
  count = int(features.lengths[0])
  if count == symbols:
    raise ValueError('the text has no token, expected one or more')
  most = LONGEST if found.reads_words else found.model.max_length
  if count > most:
    raise ValueError(
      f'found {count:,} tokens, {symbols} symbols included; expected'
      f' {most:,} at most, the positions of {found.folder}'
    )
  return features


def _split_of(found: TrainedModel) -> str:
  return getattr(found.tokenizer, 'split', DEFAULT_SPLIT)


def _framed_row(
  found: TrainedModel,
  texts: Sequence[str],
  features: Features,
  number: int,
) -> InputRow:
  """Returns a row as fine-tuning reads it."""
  place = features.place(0, number)
  ids = features.tokens[place].tolist()
  parts = _parts_of(found, ids)
  if number:  # the texts in the other order
    other = {'first': 'second', 'second': 'first'}
    parts = [other.get(part, part) for part in parts]
  if features.words is not None:
    lines = {'word': [features.words[i] for i in ids]}
  else:
    lines = {'token': _pieces(found, ids), 'id': ids}
    if framing.FORMS[found.family.form].token_types and _has_types(found):
      second = int(features.second_starts[number])
      lines['token type'] = [int(i >= second) for i in range(len(ids))]
  # An LSTM has no positions.
  if not found.reads_words:
    lines['position'] = list(range(len(ids)))
  of = 'a text' if len(texts) == 1 else 'two texts'
  order = ', in the other order' if number else ''
  return InputRow(
    f'Input of {of}{order}',
    lines,
    parts,
    [False] * len(ids),
    _symbol_notes(found),
  )


def _has_types(found: TrainedModel) -> bool:
  return bool(getattr(found.model, 'num_token_types', 0))


def _symbol_notes(found: TrainedModel) -> list[str]:
  """Returns the roles of the symbols of a left-to-right model."""
  form = framing.FORMS[found.family.form]
  if not form.left_to_right:
    return []
  symbols = framing.symbols_of(found.tokenizer, form).ids
  names = zip(
    ('start', 'delimiter', 'extract'), _pieces(found, symbols), strict=True
  )
  shown = ', '.join(f'{name} is {piece}' for name, piece in names)
  return [f'{shown}: the head of a task reads the last token, extract']


def _pieces(found: TrainedModel, ids: Sequence[int]) -> list[str]:
  return [found.tokenizer.pieces[i] for i in ids]


def _parts_of(found: TrainedModel, ids: Sequence[int]) -> list[str]:
  """Returns of each token of a framed row the text that it is of."""
  if found.reads_words:
    symbols = {0, 1}
  else:
    form = framing.FORMS[found.family.form]
    symbols = set(framing.symbols_of(found.tokenizer, form).ids)
  parts, text = [], 'first'
  for place, i in enumerate(ids):
    is_symbol = i in symbols
    parts.append('symbol' if is_symbol else text)
    if is_symbol and place:
      text = 'second'
  return parts


def _spelled(features: Features) -> list[InputRow]:
  """Returns a row of characters for each distinct word of an ELMo's rows."""
  rows = []
  for number in dict.fromkeys(features.tokens.tolist()):
    letters = features.characters[number].tolist()
    ids = [i for i in letters if i != characters.PADDING_ID]
    padding = len(letters) - len(ids)
    rows.append(
      InputRow(
        f'Characters of {features.words[number]}',
        {'character': [_LETTERS.get(i) or _byte(i) for i in ids], 'id': ids},
        ['symbol' if i in _LETTERS else 'first' for i in ids],
        [False] * len(ids),
        [f'and {padding} times padding, id {characters.PADDING_ID}'],
      )
    )
  return rows


def _byte(value: int) -> str:
  """Returns a byte of UTF-8 as its character, or as a number."""
  return chr(value) if 32 < value < 127 else f'0x{value:02X}'


def _pretraining_config(
  found: TrainedModel,
) -> tuple[ml_collections.ConfigDict, str]:
  """Returns the config whose objective is shown, and where it is from."""
  if found.weights.kind == 'workdir':
    config = workdirs.read_config(found.folder)
    if 'task' not in config and 'objective' in config.train:
      return config, f'{found.folder}/config.json'
  return found.family.default_config(), 'the defaults, as in the paper'


def _objective(
  found: TrainedModel, config: ml_collections.ConfigDict, length: int
) -> TextObjective:
  """Returns the objective of the last phase of a config."""
  phases = [training_phases.Phase(*phase) for phase in config.train.phases]
  if phases and phases[-1].unit:
    unit = training_phases.unit_of(config, phases[-1].kind)
    config = settings.with_overrides(config, {'objective.unit': unit})
  vocabulary = Vocabulary.of(found.tokenizer)
  kind = found.family.objectives[config.train.objective]
  return kind(config, length, vocabulary)


def _of_pretraining(
  found: TrainedModel,
  config: ml_collections.ConfigDict,
  source: str,
  features: Features,
  masks: Masks,
) -> InputRow:
  """Returns the row of a BERT with its masks, or with its next tokens."""
  place = features.place(0, 0)
  ids = features.tokens[place]
  length = len(ids)
  objective = _objective(found, config, length)
  # The texts are given: none is sampled of a store, and no response is chosen.
  objective.sample_pairs = lambda batch, keys, **options: dict(batch)
  objective.choose_responses = lambda batch, host_batch, keys: batch
  at = np.arange(length, dtype=np.int32)
  batch = {
    'tokens': ids[None],
    'token_types': (at >= features.second_starts[0]).astype(np.int32)[None],
    'positions': at[None],
    'token_mask': np.ones((1, length), bool),
    'example_mask': np.ones(1, bool),
    'nsp_labels': np.array([not masks.follows], np.int32),
    'nsp_weights': np.ones(1, np.float32),
  }
  wanted = objective.config.objective
  if wanted.unit == training_phases.STORED:
    batch['unit_starts'] = _unit_starts(found, config, ids)[None]
  keys = transforms.row_keys(jax.random.key(masks.seed), np.zeros(1, np.int32))
  made = jax.device_get(objective.transform(batch, keys))
  lines = {'text': _pieces(found, ids)}
  if 'mlm_targets' not in made:
    return _with_targets(found, lines, made, 'Pre-training: the next token')
  hidden = made['tokens'][0]
  used = made['mlm_weights'][0] > 0
  targets = dict(
    zip(
      made['mlm_positions'][0][used].tolist(),
      made['mlm_targets'][0][used].tolist(),
      strict=True,
    )
  )
  mask_id = found.tokenizer.mask_id
  lines['input'] = _pieces(found, hidden)
  lines['as'] = [
    None
    if place not in targets
    else 'masked'
    if hidden[place] == mask_id
    else 'random'
    if hidden[place] != ids[place]
    else 'kept'
    for place in range(length)
  ]
  lines['predict'] = [
    found.tokenizer.pieces[targets[place]] if place in targets else None
    for place in range(length)
  ]
  if _has_types(found):
    lines['token type'] = made['token_types'][0].tolist()
  lines['position'] = made['positions'][0].tolist()
  left = 1 - wanted.mask_fraction - wanted.random_fraction
  notes = [
    f'{len(targets)} of {length} tokens are predicted, {wanted.mask_rate:.0%}'
    f' by the {wanted.unit}; of these {wanted.mask_fraction:.0%} become [MASK],'
    f' {wanted.random_fraction:.0%} a random token, {left:.0%} stay ({source})'
  ]
  has_labels = 'nsp' in objective.loss_names
  if not (has_labels or masks.follows):
    raise ValueError(
      f'--not_next: train.objective={config.train.objective!r} predicts no next'
      " sentences, expected 'bert'"
    )
  if has_labels and 'second' in _parts_of(found, ids):
    label = int(made['nsp_labels'][0])
    said = ('B follows A', 'B is of another document')[label]
    notes.append(f'next-sentence label {label}: {said}')
  return InputRow(
    f'Pre-training: hidden and predicted, seed {masks.seed}',
    lines,
    _parts_of(found, ids),
    [place in targets for place in range(length)],
    notes,
  )


def _unit_starts(
  found: TrainedModel, config: ml_collections.ConfigDict, ids: np.ndarray
) -> np.ndarray:
  """Returns bool [T], where units of a run begin whose store has them."""
  if config.data.units != 'jieba':
    raise ValueError(
      f'{found.folder}: its units are marked in the text of its training'
      f' (data.units={config.data.units!r}); expected units of jieba, or an'
      ' objective.unit of piece, word or span'
    )
  starts = np.ones(len(ids), bool)
  symbols = {found.tokenizer.cls_id, found.tokenizer.sep_id}
  inside = [place for place, i in enumerate(ids) if int(i) not in symbols]
  pieces = _pieces(found, ids[inside])
  sizes = [len(piece.removeprefix('##')) for piece in pieces]
  ends = np.cumsum(sizes)
  spans = list(zip((ends - sizes).tolist(), ends.tolist(), strict=True))
  text = ''.join(piece.removeprefix('##') for piece in pieces)
  starts[inside] = units.find_segmented(text, spans)
  return starts


def _next_tokens(
  found: TrainedModel, config: ml_collections.ConfigDict, texts: Sequence[str]
) -> InputRow:
  """Returns the row of a GPT's pre-training on the texts as one."""
  (ids,) = found.encode([' '.join(texts)])
  objective = _objective(found, config, len(ids))
  window = np.zeros((1, len(ids) + 1), np.int32)
  window[0, :-1] = ids
  batch = {
    'window': window,
    'lengths': np.array([len(ids)], np.int32),
    'example_mask': np.ones(1, bool),
  }
  keys = transforms.row_keys(jax.random.key(0), np.zeros(1, np.int32))
  made = jax.device_get(objective.transform(batch, keys))
  return _with_targets(
    found,
    {'token': _pieces(found, made['tokens'][0])},
    made,
    'Pre-training: the next token, of the texts as one',
  )


def _with_targets(
  found: TrainedModel,
  lines: dict[str, Sequence[str | int | None]],
  made: Mapping[str, np.ndarray],
  title: str,
) -> InputRow:
  """Returns a row of tokens and of the token that each predicts."""
  targets, weights = made['targets'][0], made['loss_weights'][0]
  lines['predict'] = [
    found.tokenizer.pieces[target] if weight else None
    for target, weight in zip(targets, weights, strict=True)
  ]
  lines['position'] = made['positions'][0].tolist()
  count = len(targets)
  return InputRow(title, lines, ['first'] * count, [False] * count)


def _both_directions(
  found: TrainedModel, config: ml_collections.ConfigDict, texts: Sequence[str]
) -> list[InputRow]:
  """Returns the rows of both towers of an ELMo, of each text."""
  if found.tokenizer is None:
    raise ValueError(
      f'{found.folder} holds an {found.name} without a vocabulary, whose words'
      ' it would predict: expected the workdir of an elmo'
    )
  tokenizer, rows = found.tokenizer, []
  ends = characters.SENTENCE_BEGIN, characters.SENTENCE_END
  for text in texts:
    inside = words.split_words(text, tokenizer.split)
    (ids,) = found.encode([text])
    types = [tokenizer.begin_id, *ids, tokenizer.end_id]
    spelled = [ends[0], *inside, ends[1]]
    batch = {'loss_weights': np.ones((1, len(ids) + 1), np.float32)}
    for name, way in _WAYS.items():
      letters, _ = characters.encode_words(spelled[::way][:-1])
      batch |= {
        f'{name}type_ids': np.array([types[::way][:-1]], np.int32),
        f'{name}targets': np.array([types[::way][1:]], np.int32),
        f'{name}characters': letters[None],
      }
    objective = _objective(found, config, len(ids) + 1)
    keys = transforms.row_keys(jax.random.key(0), np.zeros(1, np.int32))
    made = jax.device_get(objective.transform(batch, keys))
    for name, way in _WAYS.items():
      title = 'left to right' if way > 0 else 'right to left'
      rows.append(
        InputRow(
          f'Pre-training, {title}: the next word',
          {
            'word': spelled[::way][:-1],
            'predict': _pieces(found, made[f'{name}targets'][0]),
          },
          ['symbol', *['first'] * len(ids)],
          [False] * (len(ids) + 1),
        )
      )
  return rows
