"""Prints a model's guesses about held-out text, for people."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from data.store.corpus import Store
from models.layers import Params
from train.architectures.architecture import Vocabulary
from train.engine import sharding
from train.host import processes
from train.host.console import say

NUM_SENTENCES = 6
NUM_CONTINUED, BEGINNING, CONTINUED = 3, 12, 40  # texts, their tokens
GUESS_EVERY = 5  # words
MASK_EVERY = 7  # one word piece in seven, about BERT's 15 %


def print_filled_masks(
  model: nn.Module, params: Params, store: Store, length: int
) -> None:
  """Prints a BERT's guesses of masked tokens in held-out sentences."""
  sentences = _known_sentences(store, longest=min(length - 2, 40))
  if not sentences:
    return
  tokenizer = store.tokenizer
  tokens, lengths = _padded(
    [[tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in sentences]
  )
  masked = [
    range(1 + MASK_EVERY // 2, len(ids) + 1, MASK_EVERY) for ids in sentences
  ]
  positions, _ = _padded(masked)
  for row, at in enumerate(masked):
    tokens[row, at] = tokenizer.mask_id
  places = np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
  guesses = _most_likely(
    lambda params, *inputs: model.apply(
      {'params': params}, *inputs, train=False
    )['mlm_logits'],
    params,
    tokens,
    places < lengths[:, None],
    np.zeros_like(tokens),
    places,
    positions,
  )
  say(
    '\nHeld-out sentences with masked pieces, as [guess] or [guess -> truth]:'
  )
  for row, ids in enumerate(sentences):
    pieces = [tokenizer.pieces[i] for i in ids]
    for guess, at in zip(guesses[row], masked[row], strict=False):
      guessed, truth = tokenizer.pieces[guess], pieces[at - 1]
      pieces[at - 1] = (
        f'[{truth}]' if guessed == truth else f'[{guessed} -> {truth}]'
      )
    text = ' '.join(pieces).replace(' ##', '')
    say(f'  {text}')


def _held_out_sentences(store: Store, longest: int) -> list[list[int]]:
  """Returns a few held-out sentences of 10 to `longest` ids, spread out."""
  found = []
  for document in np.flatnonzero(store.held_out):
    first, last = store.documents[document : document + 2]
    offsets = np.asarray(store.sentences[first : last + 1])
    sizes = np.diff(offsets)
    fits = np.flatnonzero((sizes >= 10) & (sizes <= longest))
    if fits.size:
      middle = fits[fits.size // 2]
      start, end = offsets[middle : middle + 2]
      found.append(np.asarray(store.tokens[start:end]).tolist())
  spread = np.linspace(0, len(found) - 1, min(NUM_SENTENCES, len(found)))
  return [found[i] for i in spread.astype(int)]


def _known_sentences(store: Store, longest: int) -> list[list[int]]:
  """Returns such sentences of a model with a row for each known token."""
  known = Vocabulary.of(store.tokenizer).known
  return [
    np.asarray(known(np.array(ids))).tolist()
    for ids in _held_out_sentences(store, longest)
  ]


def _padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
  """Returns rows of ids as int32 [B, T], zeros behind, and lengths [B]."""
  lengths = np.array([len(row) for row in rows])
  padded = np.zeros((len(rows), lengths.max()), np.int32)
  for row, ids in enumerate(rows):
    padded[row, : len(ids)] = ids
  return padded, lengths


def _most_likely(
  scores: Callable[..., jax.Array], params: Params, *inputs: np.ndarray
) -> np.ndarray:
  likely = jax.jit(lambda *arguments: scores(*arguments).argmax(-1))
  return processes.to_host(likely(params, *inputs))


def print_guesses(
  predict: Callable[[Params, jax.Array, jax.Array], jax.Array],
  params: Params,
  store: Store,
  start: int | None,
  length: int,
) -> None:
  """Prints a left-to-right model's guesses of some tokens of sentences.

  `predict` takes (parameters, tokens int [B, T], mask bool [B, T]) and returns
  scores [B, T, V] of the token after each. `start` is put before each text.
  """
  sentences = _known_sentences(store, longest=min(length - 1, 40))
  if not sentences:
    return
  before = [] if start is None else [start]
  tokens, lengths = _padded([before + ids for ids in sentences])
  mask = np.arange(tokens.shape[1]) < lengths[:, None]
  guesses = _most_likely(predict, params, tokens, mask)
  say('\nHeld-out sentences, some pieces as [guess from the left -> truth]:')
  pieces = store.tokenizer.pieces
  for row, ids in enumerate(sentences):
    words = [pieces[i] for i in ids]
    for at in range(MASK_EVERY // 2, len(ids), MASK_EVERY):
      guess = pieces[guesses[row, at + len(before) - 1]]
      words[at] = f'[{guess} -> {words[at]}]'
    say(f'  {" ".join(words)}')


def print_continuations(
  model: nn.Module, params: Params, store: Store, length: int
) -> None:
  """Prints a GPT's continuations of a few held-out beginnings."""
  tokenizer = store.tokenizer
  beginnings = _known_sentences(store, longest=length)[:NUM_CONTINUED]
  if not beginnings:
    return
  prompts = [ids[:BEGINNING] for ids in beginnings]
  tokens, lengths = _padded(prompts)
  params = jax.tree.map(processes.to_host, params)
  if not processes.is_first():
    return
  from models import decoding

  with sharding.alone():
    (written,) = decoding.generate(
      model,
      params,
      tokens,
      lengths,
      max_new_tokens=min(CONTINUED, length + 1 - int(lengths.max())),
      rngs=jax.random.split(jax.random.key(0), len(prompts)),
      sampling=decoding.Sampling(top_k=40),
      chunk=CONTINUED,
    )
  say('\nHeld-out beginnings | and how the model continues them:')
  for prompt, ids in zip(prompts, written, strict=True):
    new = [int(i) for i in ids if i != decoding.NO_TOKEN]
    whole = tokenizer.decode([*prompt, *new])
    begun = tokenizer.decode(prompt)
    text = f'{begun} | {whole.removeprefix(begun).strip()}'
    say(f'  {" ".join(text.split())}')


def print_likely_words(
  model: nn.Module, params: Params, store: Store, length: int
) -> None:
  """Prints both ELMo towers' guesses of some words of held-out sentences."""
  del length
  sentences = _held_out_sentences(store, longest=40)
  if not sentences:
    return
  tokenizer = store.tokenizer
  types, lengths = _padded(
    [[tokenizer.begin_id, *ids, tokenizer.end_id] for ids in sentences]
  )
  ids = (
    np.where(types < model.num_words, types, tokenizer.unk_id)
    if model.num_words
    else tokenizer.characters[types]
  )

  def likely_words(
    model: nn.Module, ids: jax.Array, lengths: jax.Array
  ) -> jax.Array:
    layers_LBTP, _ = model(ids, lengths)
    towers_KBTP = jnp.stack(jnp.split(layers_LBTP[-1], 2, axis=-1))
    return jax.lax.map(
      lambda hidden_KBP: model.logits(hidden_KBP).argmax(-1),
      jnp.moveaxis(towers_KBTP, 2, 0),
    )

  likely_TKB = processes.to_host(
    jax.jit(functools.partial(model.apply, method=likely_words))(
      {'params': params}, ids, lengths
    )
  )
  say(
    '\nHeld-out sentences, at some words the [guess from the left | from the'
    ' right -> truth]:'
  )
  for row, ids in enumerate(sentences):
    words = [tokenizer.pieces[i] for i in ids]
    for at in range(len(ids) // 2 % GUESS_EVERY, len(ids), GUESS_EVERY):
      left, right = likely_TKB[at, 0, row], likely_TKB[at + 2, 1, row]
      guesses = f'{tokenizer.pieces[left]} | {tokenizer.pieces[right]}'
      words[at] = f'[{guesses} -> {words[at]}]'
    say(f'  {" ".join(words)}')
