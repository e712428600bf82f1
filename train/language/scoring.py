"""Log-probabilities of texts, and of several answers to a question."""

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.text import detokenize
from data.vocabulary.tokenizer import Tokenizer
from models.layers import Params
from train.engine import objectives
from train.host import console, files
from train.host.files import Json
from train.vectors import length_batches, token_windows
from train.vectors.trained_model import TrainedModel

# Most bytes of the logits of a batch; more rows are not faster.
LOGITS_BYTES = 500_000_000
# Lengths are padded to its multiples, so that few programs are compiled.
WIDTH_STEP = 64


def windows_of(
  num_tokens: int, context: int, stride: int
) -> list[token_windows.Window]:
  """Returns windows in which every token but the first is scored once.

  A window sees `context` tokens and predicts the token after each; the next one
  begins `stride` (1 to `context`) tokens later. A token counts in the first
  window that predicts it; so tokens after the first window are predicted from
  at least `context - stride + 1` tokens.
  """
  if not 1 <= stride <= context:
    raise ValueError(
      f'--stride={stride}: expected 1 to --context={context}; a longer one'
      ' would leave tokens out'
    )
  size = context + 1
  first, *others = token_windows.cut(num_tokens, size, stride, left_only=True)
  return [first._replace(first=1), *others]


def window_sizes(
  found: TrainedModel, context: int | None, stride: int | None
) -> tuple[int, int]:
  """Returns the checked context and stride: all positions, and half of them."""
  most = found.model.max_length
  context = most if context is None else context
  if not 1 <= context <= most:
    raise ValueError(
      f'--context={context}: expected 1 to {most}, the positions that the model'
      ' has'
    )
  stride = max(1, context // 2) if stride is None else stride
  windows_of(2, context, stride)  # checks the stride
  return context, stride


@functools.partial(jax.jit, static_argnums=0)
def token_log_probs(
  model: nn.Module, params: Params, tokens: jax.Array, lengths: jax.Array
) -> jax.Array:
  """Returns the log-probability of each token but the first, by a GPT or LSTM.

  Tokens are [B, T + 1], lengths [B]. The result is float32 [B, T], in nats;
  values beyond the lengths are arbitrary.
  """
  inputs, targets = tokens[:, :-1], tokens[:, 1:]
  place = jnp.broadcast_to(jnp.arange(inputs.shape[1]), inputs.shape)
  outputs = model.apply(
    {'params': params}, inputs, place < lengths[:, None], place, train=False
  )
  losses, _ = objectives.score_labels(outputs['lm_logits'], targets)
  return -losses


def score_sequences(
  model: nn.Module, params: Params, sequences: Sequence[Sequence[int]]
) -> Iterator[np.ndarray]:
  """Yields float32 [ids - 1] log-probabilities of 2 to max_length + 1 ids."""
  steps = -(-(max(map(len, sequences)) - 1) // WIDTH_STEP) * WIDTH_STEP
  width = min(steps, model.max_length) + 1
  rows = 1 << (len(sequences) - 1).bit_length()
  while rows > 1 and 4 * rows * width * model.vocab_size > LOGITS_BYTES:
    rows //= 2
  for first in range(0, len(sequences), rows):
    part = sequences[first : first + rows]
    inputs = length_batches.pad(part, rows, width)
    scores = np.asarray(token_log_probs(model, params, *inputs))
    for row, ids in enumerate(part):
      yield scores[row, : len(ids) - 1]


def score_tokens(
  model: nn.Module,
  params: Params,
  tokens: Sequence[int],
  *,
  context: int,
  stride: int,
) -> np.ndarray:
  """Returns float32 [len(tokens) - 1] log-probabilities, see `windows_of`."""
  windows = windows_of(len(tokens), context, stride)
  tokens = np.asarray(tokens, np.int32)  # windows are views
  found = np.zeros(len(tokens) - 1, np.float32)
  scores = score_sequences(
    model, params, [tokens[window.start : window.end] for window in windows]
  )
  with console.ProgressBar(0, len(windows)) as bar:
    for number, window in enumerate(windows, start=1):
      new = window.last - window.first
      found[window.first - 1 : window.last - 1] = next(scores)[-new:]
      bar.update(number)
  return found


def score_text(
  found: TrainedModel,
  text: str,
  *,
  context: int | None = None,
  stride: int | None = None,
  detokenizer: str = 'none',
) -> tuple[dict[str, float | str], list[int], np.ndarray]:
  """Returns a text's figures, its token ids, and their log-probabilities.

  The first token is not predicted, but counts among the words, bytes and
  characters, which are counted in `text` as given. Published perplexities of
  words (WikiText, Penn Treebank) count each line end as a word: so does
  `word_perplexity_with_line_ends`, and `word_perplexity` does not. The model, a
  GPT, GPT-2 or LSTM, sees `context` tokens at once, by default all its
  positions; `stride` is by default half of it. `detokenizer` (of
  `data.text.detokenize`) is applied before encoding.
  """
  model = found.model
  context, stride = window_sizes(found, context, stride)
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
  words = detokenize.count_words(text, line_ends=False)
  with_ends = detokenize.count_words(text)
  return (
    {
      'tokens': len(tokens),
      'scored_tokens': len(log_probs),
      'nats': nats,
      'perplexity': perplexity(nats / len(log_probs)),
      'words': words,
      'line_ends': with_ends - words,
      'word_perplexity': perplexity(nats / max(words, 1)),
      'word_perplexity_with_line_ends': perplexity(nats / max(with_ends, 1)),
      'bits_per_byte': nats / math.log(2) / len(text.encode()),
      'bits_per_character': nats / math.log(2) / len(text),
      'context': context,
      'stride': stride,
      'detokenizer': detokenizer,
    },
    tokens,
    log_probs,
  )


def perplexity(value: float) -> float:
  """Returns the perplexity of a mean loss in nats; infinity beyond 700."""
  return math.exp(value) if value < 700 else math.inf


def score_choices(
  found: TrainedModel, questions: Sequence[dict[str, Json]]
) -> list[dict[str, int | list[float]]]:
  """Scores every choice as the continuation of its context.

  Context and choice are encoded as one text, with the context's trailing space
  before the choice. The choice's tokens follow the longest beginning shared
  with the tokens of the context alone.

  Returns for each question of `inputs.read_choices`: `log_probs`, the sum over
  each choice's tokens; `mean_log_probs`, their mean, by which GPT chooses
  (Radford et al. 2018, section 5); `choice`, the best; and `label` where given.
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
  scored = score_sequences(found.model, found.params, sequences)
  scores = (values[-size:] for values, size in zip(scored, sizes, strict=True))
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
  same = map(operator.eq, first, second)
  return sum(itertools.takewhile(bool, same))


def write_log_probs(
  path: str, tokenizer: Tokenizer, tokens: Sequence[int], log_probs: np.ndarray
) -> None:
  """Writes a CSV of position, id, piece and log-probability, atomically."""
  scored = zip(tokens[1:], log_probs, strict=True)
  rows = [
    (place, token, tokenizer.pieces[token], f'{value:.7g}')
    for place, (token, value) in enumerate(scored, start=1)
  ]
  header = ('position', 'id', 'piece', 'log_prob')
  files.write_atomically(path, files.as_csv([header, *rows]))
