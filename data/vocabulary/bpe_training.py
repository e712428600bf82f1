"""New byte-pair encodings of the kinds of GPT and GPT-2."""

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from data.vocabulary import bpe, bpe_files, byte_bpe, word_counts

MAX_WORDS = 1_000_000  # distinct words counted: about 150 MB
MAX_WORD_CHARS = 200


def train_bpe(
  texts: Iterable[Any],
  vocab_size: int,
  *,
  weigh: word_counts.Weigh | None = None,
) -> bpe.BPE:
  """Trains a vocabulary of GPT's kind; equal texts give equal ones.

  The texts are streamed, best as documents or parts cut between words; memory
  holds the distinct words. `vocab_size`, 50 or more, includes <unk>
  and the three symbols; too few different pieces give a smaller vocabulary.
  `texts` and `weigh`, of several languages, are as in
  `word_counts.count_texts`.
  """
  words = bpe.choose_words('the new vocabulary')
  finder = bpe.make_bpe((bpe.UNKNOWN,), (), words)
  forgotten = collections.Counter()
  parts = word_counts.count_texts(
    texts,
    lambda text: finder.parts(finder.repair(text)),
    MAX_WORDS,
    forgotten,
    weigh,
  )
  counts = collections.Counter()
  for part, found in zip(parts, finder.find_words(list(parts)), strict=True):
    for word in found:
      counts[word] += parts[part]
  letters = word_counts.count_letters(counts)
  for letter, found in zip(
    forgotten, finder.find_words(list(forgotten)), strict=True
  ):
    for word in found:
      letters.update(dict.fromkeys(word, forgotten[letter]))
  _drop_long(counts)
  newline = [bpe.NEWLINE] if counts.pop('\n', 0) else []
  del letters['\n']
  if not counts:
    raise ValueError('there is no text to train a vocabulary on')
  kept = word_counts.count_letters(counts)
  # A frequent letter has a piece inside a word and one at its end, a rare one
  # the pieces that the text has.
  frequent = word_counts.by_frequency(kept)[: vocab_size // 8]
  inside = {letter for word in counts for letter in word[:-1]}
  ending = {word[-1] for word in counts}
  for places in (inside, ending):
    places.update(frequent, letters.keys() - kept.keys())
  alphabet = word_counts.choose_letters(
    frequent[: word_counts.USUAL_LETTERS],
    letters,
    lambda letter: (letter in inside) + (letter in ending),
    vocab_size,
  )
  # A word with a rarer letter will have <unk> in it: nothing to learn from it.
  known = set(alphabet)
  counts = {word: n for word, n in counts.items() if known.issuperset(word)}
  first = [
    bpe.UNKNOWN,
    *newline,
    *(letter for letter in alphabet if letter in inside),
    *(letter + bpe.END_OF_WORD for letter in alphabet if letter in ending),
  ]
  size = vocab_size - len(bpe.SPECIALS)
  pieces, merges = _train(counts, first, size, suffix=bpe.END_OF_WORD)
  # Pieces that words leave over go to the rarest letters.
  more = (
    piece
    for letter in word_counts.by_frequency(letters)
    for piece, places in ((letter, inside), (letter + bpe.END_OF_WORD, ending))
    if letter in places
  )
  pieces = word_counts.fill(pieces, more, size)
  return bpe.make_bpe(pieces, merges, words)


def train_byte_bpe(
  texts: Iterable[Any],
  vocab_size: int,
  *,
  weigh: word_counts.Weigh | None = None,
) -> byte_bpe.ByteBPE:
  """Trains a vocabulary of GPT-2's kind; equal texts give equal ones.

  `vocab_size` includes the 256 bytes, which come first, and <|endoftext|>, the
  last: 257 or more. See also `train_bpe`.
  """
  letters = byte_bpe.byte_letters()
  split = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
  counts = word_counts.count_texts(
    texts,
    lambda text: [word for word, _ in split(text)],
    MAX_WORDS,
    weigh=weigh,
  )
  _drop_long(counts)
  if not counts:
    raise ValueError('there is no text to train a vocabulary on')
  pieces, merges = _train(counts, letters, vocab_size - 1)
  return byte_bpe.make_byte_bpe([*pieces, byte_bpe.END_OF_TEXT], merges)


def _drop_long(words: collections.Counter[str]) -> None:
  for word in [word for word in words if len(word) > MAX_WORD_CHARS]:
    del words[word]


def _train(
  words: Mapping[str, int],
  first: Sequence[str],
  vocab_size: int,
  suffix: str | None = None,
) -> tuple[list[str], bpe_files.Merges]:
  """Learns merges from counted words; `first` are the first pieces."""
  # Letters are "special tokens", to get ids in our order: the trainer's comes
  # from a hash map, and ids decide ties between merges.
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    min_frequency=2,
    special_tokens=list(first),
    show_progress=False,
    **({'end_of_word_suffix': suffix} if suffix else {}),
  )
  tokenizer = tokenizers.Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
  tokenizer.train_from_iterator(word_counts.repeat(words), trainer)
  ids = tokenizer.get_vocab(with_added_tokens=False)
  merges = json.loads(tokenizer.to_str())['model']['merges']
  return sorted(ids, key=ids.__getitem__), tuple(map(tuple, merges))
