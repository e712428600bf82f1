"""The audit of a store build: counts, dropped text and warnings."""

import collections
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from data.text import languages, text_pieces
from data.vocabulary import characters

if TYPE_CHECKING:
  from data.vocabulary.words import Words

SHORT_DOCUMENT = 128  # tokens; a window of BERT's short phase
MANY_UNKNOWN = 0.01
MANY_NOT_PREDICTED = 0.1  # of whole words


def summarise(lengths: collections.Counter) -> dict[str, Any]:
  """Returns mean, min, p5, p25, median, p75, p95, max and a histogram.

  `lengths` are length -> count; bins of the histogram double: 1, 2-3, 4-7 ...
  """
  total = lengths.total()
  ordered = sorted(lengths.items())
  ranks = {'min': 0, 'p5': 0.05, 'p25': 0.25, 'median': 0.5, 'p75': 0.75}
  ranks |= {'p95': 0.95, 'max': 1}
  result = {'mean': round(sum(a * n for a, n in ordered) / total, 2)}
  waiting = collections.deque(ranks.items())
  histogram, seen = {}, 0
  for length, count in ordered:
    seen += count
    while waiting and seen > waiting[0][1] * (total - 1):
      result[waiting.popleft()[0]] = length
    low = 1 << (length.bit_length() - 1)
    name = '1' if low == 1 else f'{low}-{2 * low - 1}'
    histogram[name] = histogram.get(name, 0) + count
  return {**result, 'histogram': histogram}


def describe_words(words: 'Words', counts: np.ndarray) -> dict[str, Any]:
  """Returns the audit's entries of a store of whole words.

  softmax_unknown_rate is the share of the training text, of `counts` int64
  [types], that the softmax cannot predict; cut_types lose characters.
  """
  unknown = counts[words.softmax_size :].sum() + counts[words.unk_id]
  return {
    'softmax_size': words.softmax_size,
    'softmax_unknown_rate': float(unknown / counts.sum()),
    'cut_types': words.num_cut,
  }


def weigh_languages(audit: dict[str, Any], exponent: float) -> None:
  """Adds the languages' shares of the tokens to train on to an audit.

  `share` is of the text, `sampled` with the exponent, as training will be.
  """
  rows = audit['languages'].values()
  trained = [row['tokens'] - row['held_out_tokens'] for row in rows]
  plain, smoothed = (languages.smooth(trained, e) for e in (1, exponent))
  for row, share, sampled in zip(rows, plain, smoothed, strict=True):
    row |= {'share': float(share), 'sampled': float(sampled)}
  audit['language_exponent'] = exponent


def find_warnings(
  audit: dict[str, Any], *, pairs: bool = True, windows: bool = True
) -> list[str]:
  """Returns warnings about a store, for `pairs` (BERT) or `windows`."""
  found = []
  median = audit['document_lengths']['median']
  is_record = audit['document_break'] == 'record'  # no other is to be had
  if pairs and audit['documents'] == 1:
    found.append(
      'a single document: next-sentence pairs need a second one for their '
      'negatives. Choose another document_break.'
    )
  if pairs and audit['one_sentence_documents'] * 2 > audit['documents']:
    found.append(
      f'{audit["one_sentence_documents"]} of {audit["documents"]} documents '
      'have one sentence: they hold no next-sentence pair. '
      + (
        'Predict masked tokens alone, by train.objective=mlm.'
        if is_record
        else 'Choose another document_break if they belong together.'
      )
    )
  if windows and median < SHORT_DOCUMENT:
    found.append(
      f'the median document has {median} tokens, fewer than a window of '
      f'{SHORT_DOCUMENT}: '
      + (
        'data.packed=documents puts several in a row.'
        if is_record
        else f'is document_break {audit["document_break"]!r} right?'
      )
    )
  asked = audit['vocab_size_asked']
  size = audit.get('softmax_size', audit['vocab_size'])
  if audit['unknown_rate'] > MANY_UNKNOWN:
    rate = f'{audit["unknown_rate"]:.1%} of the tokens are unknown: '
    if not asked:
      found.append(rate + 'does the vocabulary fit this text?')
    elif size >= asked:
      found.append(
        f'{rate}{asked:,} pieces are too few for the characters of this text. '
        'Ask for more.'
      )
    else:
      found.append(
        f'{rate}words that are too long, or characters that the text of the '
        'vocabulary does not have.'
      )
  if audit.get('softmax_unknown_rate', 0) > MANY_NOT_PREDICTED:
    found.append(
      f'{audit["softmax_unknown_rate"]:.1%} of the tokens are words that the '
      'softmax does not know, one <UNK> to it: perplexities flatter, and '
      'another vocabulary may fit this text better.'
    )
  held_out = audit['held_out']
  share, wanted = held_out['tokens'] / audit['tokens'], held_out['share_asked']
  if not wanted / 2 < share < wanted * 2:
    found.append(
      f'{share:.1%} of the tokens are held out, {wanted:.1%} were asked for: '
      'the documents are too few or too unequal for that share. Choose another '
      'document_break or held_out.'
    )
  if asked and size < asked:
    found.append(
      f'the text gave {size} vocabulary pieces, {asked} were asked for: it has '
      'no other characters, and no other parts of words twice.'
      if 'softmax_size' not in audit
      else f'the text gave {size} vocabulary pieces, {asked} were asked for.'
    )
  return found


def print_audit(audit: dict[str, Any], file: TextIO | None = None) -> None:
  """Prints the audit as tables, to standard error by default."""
  from rich import box, console, table, text

  out = console.Console(file=file, stderr=True, soft_wrap=False)
  facts = table.Table(box=box.SIMPLE_HEAD, show_header=False, title='Store')
  facts.add_column(style='bold')
  facts.add_column(justify='left')
  held_out = audit['held_out']
  rows = {
    'source': audit['source'],
    'document break': audit['document_break'],
    'documents': f'{audit["documents"]:,}',
    'sentences': f'{audit["sentences"]:,}',
    'words': f'{audit["words"]:,}',
    'tokens': f'{audit["tokens"]:,}',
    'tokenizer': audit.get('tokenizer'),
    'vocabulary': f'{audit["vocab_size"]:,} pieces',
    'vocabulary text': audit['vocabulary_text'],
    'unknown tokens': f'{audit["unknown_rate"]:.3%}',
    'held out': f'{held_out["documents"]:,} documents, '
    f'{held_out["tokens"]:,} tokens, '
    f'{held_out["tokens"] / audit["tokens"]:.1%} ({held_out["rule"]})',
    'duplicate documents': f'{audit["duplicate_documents"]:,}',
  }
  if 'softmax_size' in audit:
    rows |= {
      'vocabulary': f'{audit["vocab_size"]:,} word types, '
      f'{audit["softmax_size"]:,} of them predicted',
      'not predicted': f'{audit["softmax_unknown_rate"]:.3%} of the tokens to '
      'train on',
      'types cut': f'{audit["cut_types"]:,}, of more than '
      f'{characters.MAX_BYTES} bytes',
    }
  for reason, count in sorted(audit['dropped'].items()):
    names = audit.get('dropped_files', {}).get(reason, ())
    rows[f'dropped: {reason}'] = text_pieces.describe_count(count, names)
  if not audit['dropped']:
    rows['dropped'] = 'nothing'
  for name, value in rows.items():
    if value is not None:
      facts.add_row(name, text.Text(str(value)))
  out.print(facts)
  for unit in ('sentence', 'document'):
    summary = audit[f'{unit}_lengths']
    lengths = table.Table(
      box=box.SIMPLE_HEAD,
      title=f'Tokens a {unit}',
      caption='mean {mean:,}  min {min:,}  5 % {p5:,}  median {median:,}  '
      '95 % {p95:,}  max {max:,}'.format(**summary),
    )
    lengths.add_column('length', justify='right')
    lengths.add_column('how many', justify='right')
    lengths.add_column('')
    largest = max(summary['histogram'].values())
    for name, count in summary['histogram'].items():
      bar = '#' * round(30 * count / largest)
      lengths.add_row(name, f'{count:,}', bar)
    out.print(lengths)
  if 'languages' in audit:
    out.print(_language_table(audit))
  for warning in audit['warnings']:
    out.print(text.Text(f'warning: {warning}', style='yellow'))


def _language_table(audit: dict[str, Any]) -> Any:
  from rich import box, table

  rows = table.Table(
    box=box.SIMPLE_HEAD,
    title='Languages',
    caption='sampled: shares with language_exponent'
    f' {audit["language_exponent"]:g}',
  )
  rows.add_column('language')
  for title in ('documents', 'tokens', 'held out', 'share', 'sampled'):
    rows.add_column(title, justify='right')
  for name, row in audit['languages'].items():
    counts = (row['documents'], row['tokens'], row['held_out_tokens'])
    shares = (row['share'], row['sampled'])
    rows.add_row(
      name, *(f'{n:,}' for n in counts), *(f'{s:.2%}' for s in shares)
    )
  return rows
