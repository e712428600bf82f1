"""The command that turns text into a token store: python -m data.prepare."""

import argparse
import json
import sys
from collections.abc import Sequence

from data.store import audit as audits
from data.store import build


def main(arguments: Sequence[str] | None = None) -> int:
  """Builds a store as the arguments say; returns the exit code."""
  parser = argparse.ArgumentParser(
    prog='python -m data.prepare', description=__doc__
  )
  parser.add_argument(
    '--source',
    required=True,
    help='manual, a file, a folder, a glob, or tfds:NAME[/config][:split]',
  )
  parser.add_argument(
    '--tokenizer',
    required=True,
    help='train:wordpiece:N[:cased], train:bpe:N, train:bytebpe:N, '
    'train:words:N[:spaces] (spaces: words are apart already, a sentence a '
    'line), a vocabulary (vocab.txt; encoder.json beside vocab.bpe; words.txt '
    "or ELMo's, which all types of the text are added to), a folder with one, "
    "or a name on Hugging Face's hub",
  )
  parser.add_argument('--out', required=True, help='folder of the store')
  parser.add_argument(
    '--document_break', help='file, blank_line or a regular expression'
  )
  parser.add_argument(
    '--text_field', default='text', help='field of JSONL and TFDS records'
  )
  parser.add_argument(
    '--held_out',
    type=float,
    default=0.05,
    help='share of the tokens, in whole documents, never trained on',
  )
  parser.add_argument('--workers', type=int, help='processes; one a core')
  parser.add_argument(
    '--overwrite', action='store_true', help='replace a store that differs'
  )
  parser.add_argument(
    '--json', action='store_true', help='print the audit on standard output'
  )
  args = parser.parse_args(arguments)
  try:
    audit = build.build_store(
      args.source,
      args.tokenizer,
      args.out,
      document_break=args.document_break,
      text_field=args.text_field,
      held_out=args.held_out,
      workers=args.workers,
      overwrite=args.overwrite,
    )
  except KeyboardInterrupt:
    print('error: interrupted; nothing was left in place', file=sys.stderr)
    return 130
  except (ValueError, OSError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 1
  audits.print_audit(audit)
  print(f'the store is in {args.out}', file=sys.stderr)
  if args.json:
    print(json.dumps(audit))
  return 0


if __name__ == '__main__':
  sys.exit(main())
