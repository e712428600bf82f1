"""Turns text into a token store: python -m data.prepare --source TEXT ...

A token store is a folder that pre-training reads: the token ids of all
documents in memory-mapped arrays, and the vocabulary. The command trains the
vocabulary, if asked to, and prints an audit: counts, dropped text and warnings.
"""

import argparse
import json
import sys
from collections.abc import Sequence

from data import program, scratch, storage
from data.steady_errors import SteadyErrors
from data.store import audit as audits
from data.store import build
from data.text import languages


def main(arguments: Sequence[str] | None = None) -> int:
  """Builds a store as the arguments say; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog=program.called('data.prepare'),
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  add = parser.add_argument
  sources = (
    'manual (the documentation inside Python); a file, a folder or a glob'
    ' (gs://... too) of text, JSONL, parquet, arrow, CSV or TSV;'
    " hf:NAME[:CONFIG][:SPLIT] (a folder or a name on Hugging Face's hub);"
    ' tfds:NAME[/config][:split]; task:NAME:FOLDER (the training texts of a'
    ' labelled set); dialogue:PATH (on each line Q or R, a tab and a text); or'
    " ernie:PATH (lines as in ERNIE's release). For several languages give"
    ' LANGUAGE=SOURCE several times, as in --source en=books --source'
    " de=buecher, or 'FOLDER/*/', with a folder for each language in FOLDER"
  )
  add('--source', required=True, action='append', help=f'the text: {sources}')
  add(
    '--tokenizer',
    required=True,
    help='train:wordpiece:N[:cased], train:bpe:N, train:bytebpe:N or'
    ' train:words:N[:spaces] trains a vocabulary of N entries on the text'
    ' (spaces: the text has a sentence on each line, and white space between'
    ' all words). Otherwise a published vocabulary (vocab.txt; encoder.json'
    ' beside vocab.bpe; tokenizer.json of BERT, RoBERTa, ModernBERT, GPT or'
    ' GPT-2; or a list of words, such as words.txt, to which all other words of'
    " the text are added), a folder with one, or a name on Hugging Face's hub",
  )
  add('--out', required=True, help='folder of the token store (gs://... too)')
  add(
    '--document_break',
    help='where documents of plain text end: file (each file is a document),'
    ' blank_line, or a regular expression (a line that begins with a match'
    ' begins a document); by default blank_line for a text with a sentence on'
    ' each line, else file',
  )
  field = (
    'field or column of the text in JSONL, tables and data sets; a table'
    ' without such a column must have only one column of text, which is read;'
    ' by default %(default)s'
  )
  add('--text_field', default='text', help=field)
  share = (
    'share of the tokens, in whole documents, that is held out for evaluation'
    ' and never trained on; by default %(default)s'
  )
  add('--held_out', type=float, default=0.05, help=share)
  add(
    '--language_exponent',
    type=float,
    default=languages.EXPONENT,
    help='for several languages: a vocabulary is trained as if a language with'
    ' a share p of the text had a share proportional to p^exponent; 0: equal'
    ' shares; by default %(default)s',
  )
  units = (
    'units that masking can hide whole: the pieces of a word (wordpiece), the'
    ' text between two tabs (file), or a word of the segmenter jieba (jieba);'
    ' ernie: sources have units of their own; by default %(default)s'
  )
  add('--units', default='wordpiece', help=units)
  add(
    '--workers',
    type=int,
    help='processes that encode the text; by default one for each core',
  )
  add(
    '--overwrite',
    action='store_true',
    help='replace a store that has another text or other settings',
  )
  add(
    '--json',
    action='store_true',
    help='also print the audit as JSON, on standard output',
  )
  args = parser.parse_args(arguments)
  scratch.end_on_sigterm()
  with SteadyErrors():
    return _build(args)


def _build(args: argparse.Namespace) -> int:
  """Builds a store, and prints its audit; returns the exit code."""
  try:
    source = _join(args.source)
    parts = [*languages.paths(source), args.tokenizer]
    storage.check_buckets(parts, [args.out])
    audit = build.build_store(
      source,
      args.tokenizer,
      args.out,
      document_break=args.document_break,
      text_field=args.text_field,
      held_out=args.held_out,
      language_exponent=args.language_exponent,
      unit_source=args.units,
      workers=args.workers,
      overwrite=args.overwrite,
    )
  except KeyboardInterrupt:
    print('error: interrupted; nothing was left in place', file=sys.stderr)
    return 130
  except Exception as error:
    told = storage.explain(error)
    if told is None and not isinstance(error, ValueError | OSError):
      raise
    print(f'error: {told or error}', file=sys.stderr)
    return 1
  # With --json, standard output holds nothing else.
  out = sys.stderr if args.json else sys.stdout
  audits.print_audit(audit, out)
  print(f'the store is in {args.out}', file=out)
  if args.json:
    print(json.dumps(audit))
  return 0


def _join(sources: Sequence[str]) -> str:
  """Returns the sources as one; ValueError if they need names and lack them."""
  if len(sources) > 1:
    for source in sources:
      if not languages.is_named(source):
        raise ValueError(
          f'--source {source}: expected LANGUAGE=SOURCE where --source is given'
          f' {len(sources)} times'
        )
  return ','.join(sources)


if __name__ == '__main__':
  sys.exit(main())
