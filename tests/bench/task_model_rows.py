"""What AllenNLP's task models read: our examples, rows, batches and vectors."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from data.inputs.batches import WORD_LENGTHS, Batches, WordInputs
from data.inputs.document_batches import DocumentBatches
from data.inputs.document_rows import DocumentFeatures
from data.inputs.features import Features
from data.scoring import answers, kinds, scores, spans
from data.tasks import registry
from data.tasks.examples import Example, Task
from models import char_cnn
from train.vectors import word_table
from train.vectors.vector_cache import VectorCache

Text = dict[str, Any]  # tensors of a batch's rows, as AllenNLP's fields


@dataclasses.dataclass(frozen=True)
class Recipe:
  """The settings of a run, each an option of the command.

  Attributes:
    model: a key of `RECIPES`.
    dim: F, cells of each direction.
    layers: of the first BiLSTM; of a bidaf, of the one behind the attention.
    hidden: outputs of the linear layers; unused by taggers and a bidaf.
    maxout: outputs of a BCN's maxout layers before the last.
    dropout: of a BCN's vectors of words; of a deep_srl's states; of all layers
      of the others.
    learning_rate: of the optimiser, at first.
    batch: examples of a step.
    epochs: at most.
    patience: end after so many scores without a new best one; None: never.
    plateau: halve the rate after more than so many; None: never.
    clip_norm: of the gradient.
    max_length: words of a text.
    limit: evenly spaced examples to train on; None: all.
    eval_limit: the same of the other splits.
    vectors: file or folder of vectors of words; None: drawn.
    word_dim: of drawn vectors; 0: none.
    lower: look words up in lower case.
    fixed: do not train the vectors of words.
    unknown: vectors that the file lacks, 'normal' or 'zero'.
    characters: filters on a word's characters, see `CHARACTERS`; 0: none.
    char_dim: of the characters below the filters.
    language_model: workdir or weights whose layers are mixed; None: none.
    mix_at: 'input', 'output' or 'both'.
    mix_dropout: of the mixes.
    layer_norm: of the mixed layers.
    mix_l2: factor of the sum of squares of the mixes' weights.
  """

  model: str = 'bcn'
  dim: int = 300
  layers: int = 1
  hidden: int = 300
  maxout: tuple[int, ...] = (1200, 600)
  dropout: float = 0.5
  learning_rate: float = 1e-3
  batch: int = 100
  epochs: int = 40
  patience: int | None = 5
  plateau: int | None = None
  clip_norm: float = 5.0
  max_length: int = 128
  limit: int | None = None
  eval_limit: int | None = None
  vectors: str | None = None
  word_dim: int = 100
  lower: bool = False
  fixed: bool = False
  unknown: str = 'normal'
  characters: int = 0
  char_dim: int = 16
  language_model: str | None = None
  mix_at: str = 'input'
  mix_dropout: float = 0.0
  layer_norm: bool = False
  mix_l2: float = 0.0

  @property
  def places(self) -> tuple[str, ...]:
    """The places of the language model's mixes."""
    if self.language_model is None:
      return ()
    return ('input', 'output') if self.mix_at == 'both' else (self.mix_at,)

  @property
  def char_width(self) -> int:
    """Width of the filters on a word's characters."""
    return CHARACTERS.get(self.model, OTHER_CHARACTERS)[0]

  @property
  def char_dropout(self) -> float:
    """Dropout of what these filters return."""
    return CHARACTERS.get(self.model, OTHER_CHARACTERS)[1]

  @property
  def inputs(self) -> str:
    """A name of what words are read by."""
    words = 'vectors' if self.vectors else 'drawn' if self.word_dim else ''
    characters = 'characters' if self.characters else ''
    layers = f'language_model@{self.mix_at}' if self.language_model else ''
    return '+'.join(filter(None, (words, characters, layers)))


# As published: AllenNLP 0.9.0, training_config, which cuts no text;
# bilstm_attention by nyu-mll/GLUE-baselines, which has no limit of epochs. The
# norm of a deep_srl's gradient is clipped, as by He et al. 2017, where AllenNLP
# clips each number.
RECIPES = {
  'bcn': Recipe(fixed=True),
  'esim': Recipe(
    'esim',
    learning_rate=4e-4,
    batch=32,
    epochs=75,
    plateau=0,
    clip_norm=10.0,
    lower=True,
  ),
  'bilstm_crf': Recipe(
    'bilstm_crf',
    dim=200,
    layers=2,
    batch=64,
    epochs=75,
    patience=25,
    lower=True,
    characters=128,
    mix_l2=0.1,
  ),
  'bilstm_attention': Recipe(
    'bilstm_attention',
    dim=1500,
    layers=2,
    hidden=512,
    dropout=0.2,
    learning_rate=1e-4,
    batch=128,
  ),
  'deep_srl': Recipe(
    'deep_srl',
    layers=8,
    dropout=0.1,
    learning_rate=1.0,
    batch=80,
    epochs=500,
    patience=20,
    clip_norm=1.0,
    max_length=256,
    lower=True,
  ),
  'e2e_coref': Recipe(
    'e2e_coref',
    dim=200,
    hidden=150,
    dropout=0.2,
    batch=1,
    epochs=150,
    patience=10,
    plateau=2,
    max_length=512,
    fixed=True,
    unknown='zero',
    characters=100,
  ),
  'bidaf': Recipe(
    'bidaf',
    dim=100,
    layers=2,
    dropout=0.2,
    batch=40,
    epochs=20,
    patience=10,
    plateau=2,
    max_length=512,
    lower=True,
    fixed=True,
    characters=100,
  ),
}


# Model -> (width of the filters on characters, dropout of what they return).
CHARACTERS = {'e2e_coref': (5, 0.0), 'bidaf': (5, 0.2)}
OTHER_CHARACTERS = 3, 0.0
MAX_WIDTH = 10  # words of a span, in all forms of an e2e_coref
# Model -> (kind of its tasks, their number of texts).
READS = {
  'bcn': ('classification', 1),
  'esim': ('classification', 2),
  'bilstm_crf': ('tagging', 1),
  'bilstm_attention': ('classification', 2),
  'deep_srl': ('roles', 1),
  'e2e_coref': ('coreference', 1),
  'bidaf': ('span', 1),
}


class Split(NamedTuple):
  """A split: its examples, and their rows as batches."""

  examples: list[Example]
  batches: Batches

  @property
  def features(self) -> Features:
    """The rows."""
    return self.batches.features


class Inputs(NamedTuple):
  """The labelled splits of a task, and the table of their words."""

  task: Task
  splits: dict[str, Split]
  table: word_table.WordTable

  @property
  def labels(self) -> tuple[str, ...]:
    """Classes, or tags of BIOUL."""
    return self.splits['train'].features.tag_labels or self.task.labels

  @property
  def layers_shape(self) -> tuple[int, int]:
    """L and D of the language model; zeros without one."""
    vectors = self.splits['train'].batches.inputs.vectors
    return (0, 0) if vectors is None else vectors.shape[1:]


def read(
  name: str, data: str, recipe: Recipe, cache: str | None = None
) -> Inputs:
  """Reads a task as our program does.

  Args:
    name: of a task that the model reads.
    data: folder of the sets.
    recipe: see `Recipe`.
    cache: folder of the language model's vectors, see `VectorCache.vectors`.

  Raises:
    ValueError: if the recipe's model cannot read the task.
  """
  task = registry.find(name)
  found = task.kind, task.num_texts
  kind, num_texts = READS[recipe.model]
  if found != (kind, num_texts):
    raise ValueError(
      f'task {name}: found the kind {found[0]}, texts: {found[1]}; expected'
      f' {kind}, texts: {num_texts} for the model {recipe.model}'
    )
  found = {}
  for split in task.files:
    if split == 'train' or registry.has_split(task, data, split):
      limit = recipe.limit if split == 'train' else recipe.eval_limit
      examples = registry.load(task, data, split, limit=limit)
      if all(example.is_labelled for example in examples):
        found[split] = (
          examples,
          kinds.encode(
            task,
            examples,
            None,
            recipe.max_length,
            form='words',
            bioul=task.kind == 'tagging',
            split=task.recipe.get('words', {}).get('task.split', 'marks'),
          ),
        )
  table = word_table.build(
    {
      split: [features.words[number] for number in features.tokens]
      for split, (_, features) in found.items()
    },
    recipe.vectors,
    dim=recipe.word_dim,
    lower=recipe.lower,
    unknown=recipe.unknown,
  )
  source = None
  if recipe.language_model:
    source = VectorCache(recipe.language_model)
  splits = {}
  for split, (examples, features) in found.items():
    inputs = WordInputs(table.rows(features.words))
    if source is not None:
      sentences = [
        [features.words[number] for number in row]
        for row in np.split(features.tokens, features.offsets[1:-1])
      ]
      inputs = WordInputs(inputs.table_rows, *source.vectors(sentences, cache))
    make = functools.partial(Batches, lengths=WORD_LENGTHS)
    if isinstance(features, DocumentFeatures):
      make = DocumentBatches
    batches = make(
      features, pad_id=0, max_length=recipe.max_length, inputs=inputs
    )
    splits[split] = Split(examples, batches)
  return Inputs(task, splits, table)


def to_torch(
  batch: dict[str, np.ndarray], recipe: Recipe
) -> tuple[list[Text], Any]:
  """Returns the texts of a batch's examples, and the labels.

  As AllenNLP pads: each text to the longest of its kind in the batch, words to
  the longest word; characters are numbered from 1. A document is one text, with
  its spans, whose labels are numbers of clusters or -1.
  """
  import torch

  if recipe.model == 'e2e_coref':
    batch = _as_document(batch)
  mask = batch['token_mask']
  rows = mask.reshape(len(mask), -1, mask.shape[-1])
  texts = []
  for place in range(rows.shape[1]):
    length = max(int(rows[:, place].sum(axis=1).max()), 1)

    def cut(name: str, place: int = place, length: int = length) -> np.ndarray:
      array = batch[name]
      array = array.reshape(*rows.shape, *array.shape[mask.ndim :])
      return np.ascontiguousarray(array[:, place, :length])

    text = {
      'mask': torch.from_numpy(cut('token_mask')).long(),
      'rows': torch.from_numpy(cut('tokens')).long(),
    }
    if recipe.characters:
      spelt = (cut('characters') + 1) % (char_cnn.NO_CHARACTER + 1)
      spelt = np.where(cut('token_mask')[..., None], spelt, 0)
      longest = max(int((spelt > 0).sum(axis=-1).max()), recipe.char_width)
      text['characters'] = torch.from_numpy(spelt[..., :longest]).long()
    if recipe.language_model:
      text['layers'] = torch.from_numpy(cut('vectors')).float()
    if recipe.model == 'deep_srl':
      text['marks'] = torch.from_numpy(cut('token_types')).long()
    texts.append(text)
  labels = batch['labels']
  if 'tag_mask' in batch:
    labels = np.maximum(labels[:, : texts[0]['mask'].shape[1]], 0)
  if 'spans' in batch:
    texts[0]['spans'] = torch.from_numpy(batch['spans'])
  return texts, torch.from_numpy(labels).long()


def _as_document(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns a batch of one document as one row of its real words.

  Its labels [1, N] are of `spans` [1, N, 2], all of at most `MAX_WIDTH` words
  inside a sentence, in the order of their first, then of their last words.
  """
  mask = batch['token_mask']
  if len(mask) != 1:
    raise ValueError(f'{len(mask)} documents in a batch, expected 1')
  words = ('tokens', 'token_mask', 'characters', 'vectors')
  found = {name: batch[name][mask][None] for name in words if name in batch}
  sentences = batch['sentences'][0].tolist()
  candidates = [
    (first, last)
    for first in range(mask.sum())
    for last in range(first, min(first + MAX_WIDTH, len(sentences)))
    if sentences[last] == sentences[first]
  ]
  clusters = {
    (first, last): cluster
    for first, last, cluster in batch['labels'][0].tolist()
    if cluster >= 0
  }
  found['spans'] = np.array(candidates)[None]
  labels = [clusters.get(span, -1) for span in candidates]
  return found | {'labels': np.array([labels])}


def score(
  task: Task, split: Split, logits: Sequence[np.ndarray]
) -> dict[str, float]:
  """Returns our scorers' figures of each feature's logits."""
  outputs = answers.Outputs(
    task, split.examples, split.features, logits, spans.Options()
  )
  return scores.score(task, split.examples, kinds.decode(outputs))
