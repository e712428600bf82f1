"""Checks of the keys of ELMo's task models."""

from typing import Any

import ml_collections

from data import storage
from data.inputs import framing
from models.elmo_tasks import reader, words
from train.run import settings
from train.vectors import word_table

SPLITS = ('marks', 'spaces')
ROOM = 8  # characters behind the longest word; the widest filter fits there


def check_keys(body: Any, config: ml_collections.ConfigDict) -> None:
  """Checks the keys of a task model, a `WordProgram`, that need no data."""
  model, task, data = config.model, config.task, config.data
  names = tuple(task.names)
  for key, known in (
    ('split', SPLITS),
    ('unknown_words', word_table.UNKNOWN),
    ('mix_at', reader.PLACES),
    ('features', words.FEATURES),
  ):
    settings.expect(
      config, task[key] in known, f'task.{key}', f'one of {known}'
    )
  has_words = task.word_dim or task.word_vectors or model.filters
  reads_layers = config.init.weights and task.mix_at != 'output'
  for key, is_right, expected in (
    (
      'model.num_layers',
      body.has_layers or model.num_layers == 1,
      f'1: a {model.name} has one layer',
    ),
    ('model.hidden_dim', model.hidden_dim > 0, 'a positive number'),
    (
      'model.variant',
      model.variant in body.variants,
      f'one of {body.variants}: the forms of a {model.name}',
    ),
    (
      'task.names',
      not names or body.takes_several,
      f'none: a {model.name} is of one task; bilstm_attention takes several',
    ),
    (
      'task.names',
      len(set(names)) == len(names) != 1 and 'own' not in names,
      'two or more different tasks of the registry, or none: a set of your own'
      ' is trained alone',
    ),
    (
      'model.filters',
      all(map(_is_filter, model.filters)),
      f'pairs (width, count) of positive numbers, with widths up to {ROOM}',
    ),
    (
      'task.max_length',
      task.max_length >= framing.MIN_LENGTH,
      f'{framing.MIN_LENGTH} or more',
    ),
    (
      'task.mix_layer_norm',
      not task.mix_layer_norm or task.features == 'mix',
      "False, or task.features='mix', whose layers it normalises",
    ),
    (
      'task.word_dim',
      task.word_dim or not task.word_vectors,
      f'1 or more with task.word_vectors={task.word_vectors}: 0 means no'
      ' vectors of words',
    ),
    (
      'model.num_layers',
      model.variant != '2018' or model.num_layers > 1,
      f'3: model.variant=2018 is the {model.name} of several layers',
    ),
    (
      'data.cache',
      data.cache is None or not storage.is_remote(data.cache),
      'a local folder: files there are memory-mapped',
    ),
    (
      'task.word_dim',
      has_words or reads_layers,
      '1 or more, or task.word_vectors, model.filters, or init.weights with'
      " task.mix_at='input' or 'both': there is nothing to read words by",
    ),
  ):
    settings.expect(config, bool(is_right), key, expected)


def _is_filter(found: settings.Value) -> bool:
  return (
    isinstance(found, tuple | list)
    and len(found) == 2
    and all(isinstance(number, int) and number > 0 for number in found)
    and found[0] <= ROOM
  )
