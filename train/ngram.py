"""How far a model is ahead of n-grams, on the same held-out tokens.

python -m train.ngram WORKDIR --kenlm BIN [--order N] [--json]

An interpolated modified Kneser-Ney model (Chen and Goodman 1998) of the tokens
that the run trained on, made and queried by KenLM's programs lmplz and query
(https://github.com/kpu/kenlm), which BIN holds.
"""

import argparse

from train.host import console, device, files
from train.language import ngrams
from train.run import command


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.ngram', description=__doc__.partition('\n')[0]
  )
  parser.add_argument('workdir', metavar='WORKDIR', help='of a GPT or GPT-2')
  parser.add_argument(
    '--kenlm', required=True, metavar='BIN', help='folder of lmplz and query'
  )
  parser.add_argument('--order', type=int, default=5, help='n, by default 5')
  parser.add_argument('--stride', type=int, help="of the model's windows")
  parser.add_argument('--output', metavar='FILE', help='JSON of the figures')
  parser.add_argument(
    '--json', action='store_true', help='print JSON on standard output'
  )
  arguments = parser.parse_args()
  device.enable_compilation_cache()
  command.run(lambda: _run_command(arguments))


def _run_command(arguments: argparse.Namespace) -> None:
  files.check_writable(arguments.output)
  figures = ngrams.compare(
    arguments.workdir,
    order=arguments.order,
    kenlm=arguments.kenlm,
    stride=arguments.stride,
  )
  text = files.as_json(figures | {'revision': device.revision()})
  if arguments.json:
    print(text)
  else:
    console.figures_table(figures, 'Held-out text')
  if arguments.output:
    files.write_atomically(arguments.output, text + '\n')


if __name__ == '__main__':
  main()
