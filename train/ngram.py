"""Perplexity of a model beside n-grams, on the same held-out tokens.

python -m train.ngram WORKDIR --kenlm BIN [--order N]

An interpolated modified Kneser-Ney model (Chen and Goodman 1998) of the tokens
that the run trained on, made and queried by KenLM's programs lmplz and query
(https://github.com/kpu/kenlm), which BIN holds.
"""

import argparse

from train.host import console, files
from train.language import inputs
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('ngram', __doc__)
  add, _, number = command.adders(parser)
  add('workdir', metavar='WORKDIR', help='of a GPT or GPT-2')
  add('--kenlm', required=True, metavar='BIN', help='folder of lmplz and query')
  number('--order', default=5, help='n, by default 5')
  number('--stride', help="of the model's windows")
  add('--output', metavar='FILE', help='JSON of the figures')
  command.add_json(parser)
  command.main(parser.parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  files.check_writable(arguments.output)
  files.check_workdir(arguments.workdir)
  inputs.kenlm_programs(arguments.kenlm)
  from train.host import device
  from train.language import ngrams

  figures = ngrams.compare(
    arguments.workdir,
    order=arguments.order,
    kenlm=arguments.kenlm,
    stride=arguments.stride,
  )
  kept = figures | {'revision': device.revision()}
  shown = kept if arguments.json else figures
  console.print_figures(shown, 'Held-out text', as_json=arguments.json)
  if arguments.output:
    files.write_atomically(arguments.output, files.as_json(kept) + '\n')


if __name__ == '__main__':
  main()
