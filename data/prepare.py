"""The command that turns text into a token store: python -m data.prepare."""

import argparse
import json
import sys
from collections.abc import Sequence

from data import scratch, storage
from data.steady_errors import SteadyErrors
from data.store import audit as audits
from data.store import build
from data.text import languages


def main(arguments: Sequence[str] | None = None) -> int:
  """Builds a store as the arguments say; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m data.prepare', description=__doc__
  )
  add = parser.add_argument
  sources = (
    'manual, a file, a folder or a glob (perhaps gs://...) of text, JSONL,'
    ' parquet, arrow, CSV or TSV, hf:NAME[:CONFIG][:SPLIT] (a folder or a name'
    " on Hugging Face's hub),"
    " tfds:NAME[/config][:split], task:NAME:FOLDER (a labelled set's training"
    ' texts), dialogue:PATH (lines Q or R, tab, text), or ernie:PATH, lines of'
    " ERNIE's release; of several languages LANGUAGE=SOURCE for each one, as in"
    " --source en=books --source de=buecher, or 'FOLDER/*/', a folder for each"
    ' one'
  )
  add('--source', required=True, action='append', help=f'the text: {sources}')
  add(
    '--tokenizer',
    required=True,
    help='train:wordpiece:N[:cased], train:bpe:N, train:bytebpe:N, '
    'train:words:N[:spaces] (spaces: words are apart already, a sentence a '
    'line), a vocabulary (vocab.txt; encoder.json beside vocab.bpe; a '
    'tokenizer.json of BERT, RoBERTa, ModernBERT, GPT or GPT-2; words.txt '
    "or ELMo's, which all types of the text are added to), a folder with one, "
    "or a name on Hugging Face's hub",
  )
  add('--out', required=True, help='folder of the store, perhaps gs://...')
  add('--document_break', help='file, blank_line or a regular expression')
  field = (
    'field or column of the text in JSONL, tables and data sets; without a'
    ' column of this name the only one of text'
  )
  add('--text_field', default='text', help=field)
  share = 'share of the tokens, in whole documents, never trained on'
  add('--held_out', type=float, default=0.05, help=share)
  add(
    '--language_exponent',
    type=float,
    default=languages.EXPONENT,
    help='a new vocabulary counts the words of a language with a share p of the'
    ' text as p^exponent, renormalised',
  )
  units = (
    'which tokens make a whole: pieces of a word (wordpiece), text between tabs'
    " (file), or a word of jieba's; lines of ernie: have their own"
  )
  add('--units', default='wordpiece', help=units)
  add('--workers', type=int, help='processes; one a core')
  add('--overwrite', action='store_true', help='replace a store that differs')
  add('--json', action='store_true', help='print the audit on standard output')
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
  audits.print_audit(audit)
  print(f'the store is in {args.out}', file=sys.stderr)
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
