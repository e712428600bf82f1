"""Scores of whole sentences by every model that predicts tokens.

A score is a sum over the pieces of a sentence, in nats. B rows, T positions,
V vocabulary.
"""

import functools
import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.ngrams import counts
from data.ngrams.model import Model
from data.vocabulary import characters, words
from models.layers import Params
from models.pretrained.weights import NO_SOFTMAX
from train.architectures import families
from train.architectures.architecture import Architecture, Vocabulary
from train.engine import objectives
from train.host import console
from train.language import cloze, held_out
from train.vectors import length_batches
from train.vectors.trained_model import TrainedModel

BATCH_TOKENS = 4096
# Most bytes of the logits of a batch.
LOGITS_BYTES = 250_000_000
# For an ELMo: sentences at a time, and words of each.
ROWS, LONGEST = 32, 32


class SentenceError(ValueError):
  """A model cannot read `sentence`; `reason` says why."""

  def __init__(self, sentence: str, reason: str):
    super().__init__(f'{sentence[:80]!r}: {reason}')
    self.sentence = sentence


def check_model(
  found: TrainedModel, scoring: str = 'sum', *, within_word: bool = False
) -> None:
  """Checks that a model predicts tokens, and can be scored by `scoring`."""
  if families.is_for(found.name, 'fill_masks'):
    cloze.check_head(found.model)  # a BERT that reads to the right is scored
  else:
    held_out.check_predicts_tokens(found)
  if found.reads_words and found.tokenizer is None:
    raise ValueError(
      f'{found.folder} holds an {found.name} without a vocabulary, whose'
      ' softmax it is: expected the workdir of an elmo'
    )
  notes = found.weights.notes
  if NO_SOFTMAX in notes and not families.is_for(found.name, 'fill_masks'):
    raise ValueError(f'{found.folder}: {notes[NO_SOFTMAX]}')
  if scoring not in (known := scorings(found)):
    raise ValueError(
      f'--scoring={scoring}: {found.folder} holds {_kind(found)}: expected one'
      f' of {", ".join(known)}'
    )
  if within_word and not (hides(found) and scoring == 'sum'):
    raise ValueError(
      f'--within_word: {found.folder} holds {_kind(found)}, scored by'
      f' {scoring}: expected a bert of which pieces are hidden'
    )


def scorings(found: TrainedModel) -> tuple[str, ...]:
  """Returns the ways in which a model can be scored."""
  if hides(found):
    return 'sum', 'holistic'
  return ('sum', *objectives.DIRECTIONS) if found.reads_words else ('sum',)


def _kind(found: TrainedModel) -> str:
  way = (
    '' if hides(found) or found.reads_words else ', which reads to the right'
  )
  return f'the weights of {found.name}{way}'


def hides(found: TrainedModel) -> bool:
  """Returns whether a model is a BERT, which hides the pieces to predict."""
  return families.is_for(found.name, 'fill_masks') and not (
    found.model.left_to_right
  )


def describe(found: TrainedModel, scoring: str, within_word: bool) -> str:
  """Returns how `score` scores by a model, for people."""
  if hides(found):
    if scoring == 'holistic':
      return (
        'minus the mean cross-entropy of all pieces, [CLS] and [SEP] too,'
        ' nothing hidden (Huebner et al. 2021)'
      )
    more = ' with the later pieces of its word' if within_word else ''
    return (
      f'pseudo-log-likelihood: each piece hidden in turn{more}, summed'
      ' (Salazar et al. 2020); [CLS] and [SEP] are seen and not scored'
    )
  if found.reads_words:
    which = f'the {scoring} language model, summed'
    if scoring == 'sum':
      which = 'the forward and by the backward language model, summed over both'
    return f'log-probability of the words by {which}; no end is scored'
  begin = _begin(found)
  if begin:
    return (
      'log-probability: all pieces after the symbol'
      f' {found.tokenizer.pieces[begin[0]]}, summed; no end is scored'
    )
  return (
    'log-probability: all pieces after the first, summed: its vocabulary has no'
    ' symbol for a beginning; no end is scored'
  )


def _begin(found: TrainedModel) -> list[int]:
  """Returns the symbol before a sentence, as in the model's training."""
  before, _ = found.family.frame(found.tokenizer)
  objective = found.family.objectives['lm']
  if getattr(objective, 'follows_end_of_text', False):
    return [found.tokenizer.end_of_text_id]
  return before


def encode(found: TrainedModel, sentences: Sequence[str]) -> list[list[int]]:
  """Returns the pieces of sentences, with the symbols around them.

  Raises SentenceError for a sentence that is longer than the model reads, or
  that has too few pieces to score one.
  """
  if found.reads_words:
    return _words_of(found, sentences)
  before, after = _begin(found), []
  if hides(found):
    before, after = found.family.frame(found.tokenizer)
  encoded = [
    [*before, *ids, *after] for ids in found.tokenizer.encode_batch(sentences)
  ]
  most = found.model.max_length + (not after)
  for sentence, ids in zip(sentences, encoded, strict=True):
    if not 2 + len(after) <= len(ids) <= most:
      raise SentenceError(
        sentence,
        f'has {len(ids)} pieces with the symbols around it, expected'
        f' {2 + len(after)} to {most} by {found.folder}',
      )
  return encoded


def score(
  found: TrainedModel,
  sentences: Sequence[str],
  *,
  scoring: str = 'sum',
  within_word: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the scores of sentences and how many pieces each counts.

  Both float64 [sentences]. See `describe` for what is scored. `within_word`
  hides the later pieces of a word with each piece (Kauf and Ivanova 2023). A
  score does not depend on the other sentences, nor on their order.
  """
  if found.reads_words:
    return score_directions(found, sentences)[scoring]
  distinct = list(dict.fromkeys(sentences))
  scored = log_probs(found, distinct, scoring=scoring, within_word=within_word)
  sums = np.full((2, len(distinct)), np.nan)
  for number, values in scored:
    sums[:, number] = values.sum(dtype=np.float64), len(values)
  if scoring == 'holistic':
    sums[0] /= sums[1]
  return tuple(sums[:, _places(distinct, sentences)])


def score_directions(
  found: TrainedModel, sentences: Sequence[str]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
  """Returns the scores by an ELMo in each of its ways; it reads once for all.

  A way -> what `score` returns for it.
  """
  distinct = list(dict.fromkeys(sentences))
  sums = np.full((2, 2, len(distinct)), np.nan)
  for number, values in log_probs(found, distinct):
    for way, part in zip(sums, np.split(values, 2), strict=True):
      way[:, number] = part.sum(dtype=np.float64), len(part)
  sums = sums[:, :, _places(distinct, sentences)]
  return {
    'sum': tuple(sums.sum(axis=0)),
    **{
      name: tuple(way)
      for name, way in zip(objectives.DIRECTIONS, sums, strict=True)
    },
  }


def _places(distinct: Sequence[str], sentences: Sequence[str]) -> list[int]:
  place = {sentence: number for number, sentence in enumerate(distinct)}
  return [place[sentence] for sentence in sentences]


def log_probs(
  found: TrainedModel,
  sentences: Sequence[str],
  *,
  scoring: str = 'sum',
  within_word: bool = False,
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number of a sentence, log-probability of each piece), in any order.

  Of an ELMo those of its words forward, then those backward. For the rest see
  `score`.
  """
  encoded = encode(found, sentences)
  if found.reads_words:
    scored = _both_ways(found, encoded)
  elif not hides(found):
    scored = _left_to_right(found, encoded)
  elif scoring == 'holistic':
    scored = _unhidden(found, encoded)
  else:
    scored = _hidden(found, encoded, within_word)
  return console.counted(scored, len(sentences), 'sentences')


def score_by_ngrams(
  model: Model, sentences: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the log-probabilities of sentences and their numbers of words.

  Words stand between white space. A sentence follows <s>, and </s> counts.
  """
  texts = [
    [counts.BEGIN, *(model.ids.get(w, counts.UNKNOWN) for w in s.split())]
    for s in sentences
  ]
  ids = np.concatenate([[*text, counts.END] for text in texts]).astype(np.int64)
  sizes = np.array([len(text) + 1 for text in texts])
  begins = np.cumsum(sizes) - sizes
  starts = np.zeros(len(ids), bool)
  starts[begins] = True
  log_probs = model.log_probs(ids, starts)
  log_probs[begins] = 0
  return np.add.reduceat(log_probs, begins), sizes - 1.0


def _batches(
  found: TrainedModel, encoded: Sequence[list[int]], longest: int
) -> Iterator[length_batches.TextBatch]:
  """Returns batches of bounded logits; none is padded beyond `longest`."""
  per_token = 4 * found.model.vocab_size
  tokens = min(BATCH_TOKENS, max(1, LOGITS_BYTES // per_token))
  return length_batches.batches_by_length(
    enumerate(encoded), tokens, added=0, longest=longest
  )


def _left_to_right(
  found: TrainedModel, encoded: Sequence[list[int]]
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, log-probability of each piece but the first)."""
  # The model does not read the last piece.
  for batch in _batches(found, encoded, found.model.max_length + 1):
    tokens, lengths = length_batches.pad(batch.texts, batch.rows, batch.length)
    log_probs = _next_log_probs(
      found.model,
      found.params,
      tokens,
      lengths,
      family=found.family,
      by_mlm=families.is_for(found.name, 'fill_masks'),
    )
    for number, ids, row in zip(
      batch.numbers, batch.texts, np.asarray(log_probs), strict=False
    ):
      yield number, row[: len(ids) - 1]


@functools.partial(jax.jit, static_argnames=('model', 'family', 'by_mlm'))
def _next_log_probs(
  model: nn.Module,
  params: Params,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  *,
  family: Architecture,
  by_mlm: bool,
) -> jax.Array:
  """Returns float32 [B, T - 1], of each token but the first."""
  inputs_BT = tokens_BT[:, :-1]
  at_BT = jnp.broadcast_to(jnp.arange(inputs_BT.shape[1]), inputs_BT.shape)
  inputs = family.text_inputs(inputs_BT, at_BT < lengths_B[:, None], at_BT)
  places = (at_BT,) if by_mlm else ()
  outputs = model.apply({'params': params}, *inputs, *places, train=False)
  logits = outputs['mlm_logits' if by_mlm else 'lm_logits']
  losses, _ = objectives.score_labels(logits, tokens_BT[:, 1:])
  return -losses


def _words_of(found: TrainedModel, sentences: Sequence[str]) -> list[list[str]]:
  """Returns the words of sentences for an ELMo, which has no longest one."""
  split = found.tokenizer.split
  texts = [words.split_words(sentence, split) for sentence in sentences]
  for sentence, text in zip(sentences, texts, strict=True):
    if not text:
      raise SentenceError(sentence, 'has no word')
  return texts


def _both_ways(
  found: TrainedModel, texts: Sequence[list[str]]
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, log-probability of each word, forward then backward)."""
  tokenizer, model = found.tokenizer, found.model
  known = Vocabulary.of(tokenizer).known
  ids = {word: number for number, word in enumerate(tokenizer.pieces)}
  ends = characters.SENTENCE_BEGIN, characters.SENTENCE_END
  # Words of one number are encoded once: unknown words have their own, too.
  distinct = {'', *ends, *itertools.chain.from_iterable(texts)}
  numbers = {word: number for number, word in enumerate(sorted(distinct))}
  if model.num_words:
    numbers = {
      word: int(known(np.int32(ids.get(word, tokenizer.unk_id))))
      for word in distinct
    }
  for batch in length_batches.batches_by_length(
    enumerate(texts), ROWS * LONGEST, added=1
  ):
    # Towers, rows, words: what each reads, and predicts after it.
    read = [
      [[begin, *text[::way]] for text in batch.texts]
      for begin, way in zip(ends, (1, -1), strict=True)
    ]
    wanted = [
      [[*text[::way], end] for text in batch.texts]
      for end, way in zip(ends[::-1], (1, -1), strict=True)
    ]
    shape = 2, batch.rows, batch.length
    inputs = np.full(shape, numbers[''], np.int32)
    targets = np.full(shape, tokenizer.unk_id, np.int32)
    letters = np.full(
      (*shape, characters.MAX_CHARACTERS), characters.PADDING_ID, np.int16
    )
    for tower in range(2):
      for row, (seen, after) in enumerate(
        zip(read[tower], wanted[tower], strict=True)
      ):
        size = len(seen)
        inputs[tower, row, :size] = [numbers[word] for word in seen]
        targets[tower, row, :size] = [
          ids.get(word, tokenizer.unk_id) for word in after
        ]
        letters[tower, row, :size], _ = characters.encode_words(seen)
    losses = held_out.read_on(
      model,
      found.params,
      inputs,
      None if model.num_words else letters,
      np.asarray(known(targets)),
    )
    losses = -np.asarray(losses)
    for row, (number, text) in enumerate(
      zip(batch.numbers, batch.texts, strict=True)
    ):
      yield number, losses[:, row, : len(text)].ravel()


def _unhidden(
  found: TrainedModel, encoded: Sequence[list[int]]
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, log-probability of each piece where all are seen)."""
  family = found.family
  for batch in _batches(found, encoded, found.model.max_length):
    tokens, lengths = length_batches.pad(batch.texts, batch.rows, batch.length)
    at = np.broadcast_to(np.arange(batch.length, dtype=np.int32), tokens.shape)
    log_probs = _mlm_log_probs(
      found.model, found.params, tokens, tokens, lengths, at, family=family
    )
    for number, ids, row in zip(
      batch.numbers, batch.texts, np.asarray(log_probs), strict=False
    ):
      yield number, row[: len(ids)]


def _hidden(
  found: TrainedModel, encoded: Sequence[list[int]], within_word: bool
) -> Iterator[tuple[int, np.ndarray]]:
  """Yields (number, log-probability of each piece where it is hidden)."""
  family = found.family
  tokenizer = found.tokenizer
  before, after = map(len, family.frame(tokenizer))
  continues = np.asarray(tokenizer.continuations())
  by_length: dict[int, list[int]] = {}
  for number, ids in enumerate(encoded):
    by_length.setdefault(len(ids), []).append(number)
  for length, numbers in sorted(by_length.items()):
    rows = max(1, BATCH_TOKENS // length)
    pieces = np.arange(before, length - after)
    done: dict[int, list[np.ndarray]] = {}
    # All rows of one length: (sentence, hidden place).
    sentences = np.repeat(numbers, len(pieces))
    places = np.tile(pieces, len(numbers))
    for first in range(0, len(places), rows):
      part = slice(first, first + rows)
      at = np.resize(places[part], rows)  # repeats fill the last batch
      texts = np.array([encoded[i] for i in np.resize(sentences[part], rows)])
      hides = np.arange(length) == at[:, None]
      if within_word:
        for row, place in enumerate(at):
          end = place + 1
          while end < length - after and continues[texts[row, end]]:
            end += 1
          hides[row, place:end] = True
      inputs = np.where(hides, tokenizer.mask_id, texts).astype(np.int32)
      log_probs = _mlm_log_probs(
        found.model,
        found.params,
        inputs,
        texts.astype(np.int32),
        np.full(rows, length, np.int32),
        at[:, None].astype(np.int32),
        family=family,
      )
      for number, value in zip(
        sentences[part], np.asarray(log_probs)[:, 0], strict=False
      ):
        values = done.setdefault(int(number), [])
        values.append(value)
        if len(values) == len(pieces):
          yield int(number), np.array(done.pop(int(number)))


@functools.partial(jax.jit, static_argnames=('model', 'family'))
def _mlm_log_probs(
  model: nn.Module,
  params: Params,
  inputs_BT: jax.Array,
  tokens_BT: jax.Array,
  lengths_B: jax.Array,
  places_BP: jax.Array,
  *,
  family: Architecture,
) -> jax.Array:
  """Returns float32 [B, P], of the tokens at some places of other inputs."""
  at_BT = jnp.broadcast_to(jnp.arange(inputs_BT.shape[1]), inputs_BT.shape)
  inputs = family.text_inputs(inputs_BT, at_BT < lengths_B[:, None], at_BT)
  outputs = model.apply({'params': params}, *inputs, places_BP, train=False)
  targets_BP = jnp.take_along_axis(tokens_BT, places_BP, axis=1)
  losses, _ = objectives.score_labels(outputs['mlm_logits'], targets_BP)
  return -losses
