"""Chooses the documents of a store that are held out, never trained on."""

import numpy as np

FEW_DOCUMENTS = 20


def hold_out_each(
  hashes: np.ndarray,
  documents: np.ndarray,
  sentences: np.ndarray,
  share: float,
  languages: dict[str, int],
) -> tuple[np.ndarray, np.ndarray, str, np.ndarray]:
  """Holds documents of each language out; see `hold_out`.

  A text that is held out in one language is so in all that draw whole
  documents, unless that leaves one nothing to train on. Returns the same, and
  the start of each language in documents, then D'.
  """
  if len(languages) == 1:
    cut, held_out, rule = hold_out(hashes, documents, sentences, share)
    return cut, held_out, rule, np.array([0, len(held_out)])
  cuts, flags, rules, bounds, first = [[0]], [], {}, [0], 0
  is_cut = False
  for name, count in languages.items():
    of = documents[first : first + count + 1]
    try:
      cut, held_out, rule = hold_out(
        hashes[first : first + count], of, sentences, share
      )
    except ValueError as error:
      raise ValueError(f'language {name!r}: {error}') from None
    is_cut |= cut is not of
    cuts.append(cut[1:])
    flags.append(held_out)
    rules.setdefault(rule, []).append(name)
    bounds.append(bounds[-1] + len(held_out))
    first += count
  if len(rules) == 1:
    (rule,) = rules
  else:
    rule = '; '.join(
      f'{", ".join(names)}: {rule}' for rule, names in rules.items()
    )
  cut = np.concatenate(cuts) if is_cut else documents
  _share_drawn(hashes, list(languages.values()), flags)
  return cut, np.concatenate(flags), rule, np.array(bounds)


def _share_drawn(
  hashes: np.ndarray, counts: list[int], flags: list[np.ndarray]
) -> None:
  """Holds texts that one language drew out in the others, too, in place."""
  of_languages = np.split(hashes, np.cumsum(counts)[:-1])
  whole = [  # documents that are not cut
    (own, held)
    for own, held in zip(of_languages, flags, strict=True)
    if len(own) >= FEW_DOCUMENTS
  ]
  if not whole:
    return
  drawn = np.concatenate([own[held] for own, held in whole])
  for own, held in whole:
    with_others = held | np.isin(own, drawn)
    if not with_others.all():
      held[:] = with_others


def hold_out(
  hashes: np.ndarray, documents: np.ndarray, sentences: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray, str]:
  """Decides which documents are never trained on.

  Takes whole documents in the order of their hashes, uint64 [D], until they
  have `share` of the tokens, so that duplicates fall on one side (`_draw`). Of
  fewer than `FEW_DOCUMENTS` it holds out each one's last sentences, `share` of
  them, as new documents. Returns document offsets, the same object if none is
  cut; bool [D'], held out; and the rule in words. Raises ValueError if nothing
  could be held out, or nothing trained on.
  """
  if len(hashes) >= FEW_DOCUMENTS:
    held_out = _draw(hashes, documents, sentences, share)
    if held_out.all():
      raise ValueError(
        f'all {len(hashes)} documents would be held out (held_out {share}; '
        'are they all the same text?): none is left for training'
      )
    return documents, held_out, 'whole documents in the order of their hashes'
  cut, flags = [int(documents[0])], []
  for start, end in zip(documents[:-1], documents[1:], strict=True):
    if (size := int(end - start)) > 1:
      tail = min(max(round(size * share), 1), size - 1)
      cut.append(int(end) - tail)
      flags.append(False)
    cut.append(int(end))
    flags.append(size > 1)
  if not any(flags):
    raise ValueError(
      f'{len(hashes)} document(s) of one sentence each: nothing can be held '
      'out for evaluation. Is document_break right? Give more text.'
    )
  rule = 'the last sentences of each document'
  return np.array(cut, np.int64), np.array(flags), rule


def _draw(
  hashes: np.ndarray, documents: np.ndarray, sentences: np.ndarray, share: float
) -> np.ndarray:
  """Returns bool [D], whole documents drawn until they have a share of tokens.

  Texts, with all duplicates, are taken in the order of their hashes, two at
  least for BERT's pairs. A text that would exceed twice the share is passed
  over; if that leaves little, half of the documents outside the share stay to
  train on.
  """
  target = share * float(sentences[documents[-1]] - sentences[documents[0]])
  most = (1 + share) / 2 * len(hashes)  # documents
  limit = 2 * share  # of all hashes; those below are sorted
  while True:
    below = np.flatnonzero(hashes <= np.uint64(min(limit * 2**64, 2**64 - 1)))
    found, first = np.unique(hashes[below], return_inverse=True)
    sizes = np.zeros(len(found), np.int64)
    ends = sentences[documents[below + 1]]
    np.add.at(sizes, first, ends - sentences[documents[below]])
    taken = np.zeros(len(found), bool)
    copies = np.bincount(first, minlength=len(found))
    held, over = 0, False
    for place, size in enumerate(sizes.tolist()):
      if held + size <= 2 * target:
        taken[place] = True
        held += size
      over = held >= target or copies[taken].sum() >= most
      if over:
        break
    if limit >= 1 or (over and np.count_nonzero(taken) >= 2):
      break
    limit *= 2
  rest = np.flatnonzero(~taken)
  taken[rest[: max(0, 2 - np.count_nonzero(taken))]] = True
  held_out = np.zeros(len(hashes), bool)
  held_out[below[taken[first]]] = True
  return held_out
