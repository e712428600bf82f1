"""How likely a model finds a text, or each of several answers."""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.text import detokenize, text_files
from train.engine import objectives
from train.host import console, files
from train.params import trained

# Logits of a batch take at most so many bytes; more rows are not faster.
LOGITS_BYTES = 500_000_000


class Window(NamedTuple):
  """A stretch of text, and the part of it that is scored.

  Attributes:
    start: first token that the model sees.
    end: one past the last one that it predicts.
    first_scored: the first token whose prediction counts.
  """

  start: int
  end: int
  first_scored: int


def windows_of(num_tokens: int, context: int, stride: int) -> Iterator[Window]:
  """Cuts a text so that every token but the first is scored once.

  A window sees `context` tokens and predicts the one after each; the next
  begins `stride` tokens later, and what both predict counts for the first.
  So with stride < context, every token but those of the first window is
  predicted from at least `context - stride + 1` tokens.

  Args:
    num_tokens: of the text.
    context: tokens that the model sees at once.
    stride: 1 to context.

  Raises:
    ValueError: at any other stride.
  """
  if not 1 <= stride <= context:
    raise ValueError(
      f'--stride={stride}: expected 1 to --context={context}; a longer one'
      ' would leave tokens out'
    )
  scored = 1
  for start in range(0, num_tokens - 1, stride):
    end = min(start + context + 1, num_tokens)
    yield Window(start, end, scored)
    if end == num_tokens:
      return
    scored = end


@functools.partial(jax.jit, static_argnums=0)
def token_log_probs(
  model: nn.Module, params: Any, tokens: jax.Array, lengths: jax.Array
) -> jax.Array:
  """Returns the log-probability of each token but the first.

  Args:
    model: a left-to-right model.
    params: its parameters.
    tokens: int [B, T + 1].
    lengths: int [B], real tokens.

  Returns:
    float32 [B, T], in nats; without meaning beyond the lengths.
  """
  inputs, targets = tokens[:, :-1], tokens[:, 1:]
  place = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)
  outputs = model.apply(
    {'params': params}, inputs, place < lengths[:, None], place, train=False
  )
  losses, _ = objectives.score_labels(outputs['lm_logits'], targets)
  return -losses


def score_sequences(
  model: nn.Module,
  params: Any,
  sequences: Sequence[Sequence[int]],
) -> Iterator[np.ndarray]:
  """Yields each sequence's log-probabilities, of all tokens but its first.

  Args:
    model: a left-to-right model.
    params: its parameters.
    sequences: token ids, at least 2 and at most max_length + 1 each.

  Yields:
    float32 arrays, each one shorter than its sequence.
  """
  # Few shapes, so that few programs are compiled.
  steps = -(-(max(map(len, sequences)) - 1) // 64) * 64
  width = min(steps, model.max_length) + 1
  rows = 1 << (len(sequences) - 1).bit_length()
  while rows > 1 and 4 * rows * width * model.vocab_size > LOGITS_BYTES:
    rows //= 2
  for first in range(0, len(sequences), rows):
    part = sequences[first : first + rows]
    tokens = np.zeros((rows, width), np.int32)
    lengths = np.zeros(rows, np.int32)
    for row, sequence in enumerate(part):
      tokens[row, : len(sequence)] = sequence
      lengths[row] = len(sequence)
    scores = np.asarray(token_log_probs(model, params, tokens, lengths))
    for row, ids in enumerate(part):
      yield scores[row, : len(ids) - 1]


def score_tokens(
  model: nn.Module,
  params: Any,
  tokens: Sequence[int],
  *,
  context: int,
  stride: int,
) -> np.ndarray:
  """Returns the log-probability of every token of a text but the first.

  Args:
    model: a left-to-right model.
    params: its parameters.
    tokens: of the text, 2 or more.
    context: see `windows_of`.
    stride: see `windows_of`.

  Returns:
    float32 [len(tokens) - 1], in nats.
  """
  windows = list(windows_of(len(tokens), context, stride))
  tokens = np.asarray(tokens, np.int32)  # windows are views
  found = np.zeros(len(tokens) - 1, np.float32)
  scores = score_sequences(
    model, params, [tokens[window.start : window.end] for window in windows]
  )
  with console.ProgressBar(0, len(windows)) as bar:
    for number, (window, values) in enumerate(
      zip(windows, scores, strict=True), start=1
    ):
      new = window.end - window.first_scored
      found[window.first_scored - 1 : window.end - 1] = values[-new:]
      bar.update(number)
  return found


def score_text(
  found: trained.Trained,
  text: str,
  *,
  context: int | None = None,
  stride: int | None = None,
  detokenizer: str = 'none',
) -> tuple[dict[str, Any], list[int], np.ndarray]:
  """Scores a text as a whole; one that is shorter than the context, at once.

  The first token is not predicted; it, too, is among the words, bytes and
  characters that the figures are of. The end of a line is a word.

  Args:
    found: the model.
    text: the text.
    context: tokens that the model sees at once; by default all it can.
    stride: 1 to context, by default half of it.
    detokenizer: what to undo first, see `data.text.detokenize`. Words, bytes
      and characters are counted in the text as given.

  Returns:
    The figures, the token ids, and the log-probabilities of all but the first.

  Raises:
    ValueError: if a number makes no sense, or the text has not two tokens.
  """
  model = found.model
  context = model.max_length if context is None else context
  if not 1 <= context <= model.max_length:
    raise ValueError(
      f'--context={context}: expected 1 to {model.max_length}, the positions'
      ' that the model has'
    )
  stride = max(1, context // 2) if stride is None else stride
  (tokens,) = found.encode([detokenize.DETOKENIZERS[detokenizer](text)])
  if len(tokens) < 2:
    unit = 'token' if tokens else 'tokens'
    raise ValueError(
      f'the text has {len(tokens)} {unit}, expected 2 or more: the first is not'
      ' predicted, so there is nothing to score'
    )
  log_probs = score_tokens(
    model, found.params, tokens, context=context, stride=stride
  )
  nats = -float(log_probs.astype(np.float64).sum())
  words = detokenize.count_words(text)
  return (
    {
      'tokens': len(tokens),
      'scored_tokens': len(log_probs),
      'nats': nats,
      'perplexity': _exp(nats / len(log_probs)),
      'words': words,
      'word_perplexity': _exp(nats / max(words, 1)),
      'bits_per_byte': nats / math.log(2) / len(text.encode()),
      'bits_per_character': nats / math.log(2) / len(text),
      'context': context,
      'stride': stride,
      'detokenizer': detokenizer,
    },
    tokens,
    log_probs,
  )


def _exp(value: float) -> float:
  return math.exp(value) if value < 700 else math.inf


def score_choices(
  found: trained.Trained, questions: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
  """Scores every choice as what follows its context.

  Args:
    found: the model.
    questions: of `read_choices`.

  Returns:
    For each question: `log_probs`, the sum over each choice's tokens;
    `mean_log_probs`, their average, by which GPT chooses (Radford et al. 2018,
    section 5); `choice`, the best by it; and `label` where one was given.

  Context and choice are one text: what of its tokens the context alone does not
  have is the choice's. So a choice begins with its space.

  Raises:
    ValueError: if a question does not fit into the model's positions.
  """
  encode = found.encode
  limit = found.model.max_length + 1
  sequences, sizes = [], []
  for number, question in enumerate(questions, start=1):
    text = question['context'].rstrip()
    space = question['context'][len(text) :]
    (context,) = encode([text])
    joined = encode([text + space + choice for choice in question['choices']])
    for choice, ids in zip(question['choices'], joined, strict=True):
      size = len(ids) - _num_common(context, ids)
      if size in (0, len(ids)):
        empty = 'choice ' + repr(choice) if context else 'the context'
        raise ValueError(f'question {number}: {empty} has no token')
      if len(ids) > limit:
        raise ValueError(
          f'question {number}: context and choice have {len(ids)} tokens, the'
          f' model scores {limit} at most'
        )
      sequences.append(ids)
      sizes.append(size)
  scores = iter(
    values[-size:]
    for values, size in zip(
      score_sequences(found.model, found.params, sequences),
      sizes,
      strict=True,
    )
  )
  results = []
  for question in questions:
    values = [next(scores) for _ in question['choices']]
    means = [float(value.mean()) for value in values]
    result = {
      'log_probs': [float(value.sum()) for value in values],
      'mean_log_probs': means,
      'choice': int(np.argmax(means)),
    }
    if question.get('label') is not None:
      result['label'] = question['label']
    results.append(result)
  return results


def _num_common(first: Sequence[int], second: Sequence[int]) -> int:
  """Returns how many tokens two sequences begin with alike."""
  pairs = enumerate(zip(first, second, strict=False))
  return next(
    (place for place, (one, other) in pairs if one != other),
    min(len(first), len(second)),
  )


def read_choices(path: str) -> list[dict[str, Any]]:
  """Reads questions, a JSON object a line: context, choices and maybe label.

  Raises:
    ValueError: naming the line that is something else.
    OSError: if the file cannot be read.
  """
  return text_files.parse_records(
    text_files.read_text(path),
    path,
    _is_question,
    '{"context": text, "choices": [two or more texts], "label": number of the'
    ' right one, from 0, or absent}',
  )


def _is_question(record: dict[str, Any]) -> bool:
  choices, label = record.get('choices'), record.get('label')
  return (
    isinstance(record.get('context'), str)
    and isinstance(choices, list)
    and len(choices) > 1
    and all(isinstance(choice, str) for choice in choices)
    and (label is None or label in range(len(choices)))
  )


def write_log_probs(
  path: str, tokenizer: Any, tokens: Sequence[int], log_probs: np.ndarray
) -> None:
  """Writes a CSV of position, id, piece and log-probability, atomically."""
  rows = [
    (place, token, tokenizer.pieces[token], f'{value:.7g}')
    for place, (token, value) in enumerate(
      zip(tokens[1:], log_probs, strict=True), start=1
    )
  ]
  header = ('position', 'id', 'piece', 'log_prob')
  files.write_atomically(path, files.as_csv([header, *rows]))
