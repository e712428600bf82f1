"""N-grams of a text, and a table of perplexities beside neural models.

python -m train.ngram STORE --beside WORKDIR WORKDIR ...   one table
python -m train.ngram WORKDIR                              a run and n-grams
python -m train.ngram 'books/*.txt' --test my.txt --out books.arpa
python -m train.ngram books.arpa --test my.txt

The n-grams are those of the training text of a token store or of the run in a
WORKDIR, tested on its held-out text; or of text files with words between white
space, a text a line. An ARPA file, ours or of another program, is read.
"""

import argparse

from data.text import text_files
from train.host import console, files
from train.language import inputs
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('ngram', __doc__)
  add, _, number = command.adders(parser)
  add('text', metavar='TEXT', help='token store, workdir, text files or .arpa')
  number('--order', help='n, by default 5; of a table, 1 to n')
  add(
    '--smoothing',
    metavar='NAME[:NUMBER,...]',
    help='modified_kneser_ney, kneser_ney[:discount], katz, jelinek_mercer[:'
    'weight,...], add_k[:k] or maximum_likelihood; by default the first',
  )
  number('--min_count', help='of a word of files, else unknown; by default 1')
  add('--test', metavar='FILES', help='text files to score, a text a line')
  add('--out', metavar='FILE.arpa[.gz]', help='write the n-grams')
  add(
    '--beside',
    nargs='+',
    action='extend',
    metavar='WORKDIR',
    help='models of the same store',
  )
  number('--tokens', help='held-out tokens to score, in passages; else all')
  add(
    '--mix',
    type=float,
    help='weight of the n-grams in mixtures with models that read from the left'
    ' to the right; by default fitted on the other half of the tokens',
  )
  add(
    '--kenlm', metavar='BIN', help="folder of KenLM's lmplz, to estimate with"
  )
  add('--arpa', metavar='FILE.arpa', help='n-grams of the table, made before')
  add('--output', metavar='FILE', help='JSON of the figures')
  command.add_json(parser)
  command.main(parser.parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  kind = inputs.ngram_source(arguments.text)
  inputs.check_ngram_options(kind, arguments)
  order = arguments.order or 5
  estimate = inputs.parse_smoothing(arguments.smoothing, order)
  files.check_writable(arguments.output)
  files.check_writable(arguments.out)
  if arguments.kenlm:
    inputs.kenlm_program(arguments.kenlm)
  test = text_files.find(arguments.test)[0] if arguments.test else []
  from train.host import device
  from train.language import beside, ngrams

  if kind in ('store', 'workdir'):
    store, models = beside.open_text(arguments.text, arguments.beside or [])
    orders = range(order if arguments.kenlm else 1, order + 1)
    scorers = (
      ngrams.read(arguments.arpa, store)
      if arguments.arpa
      else ngrams.of_store(store, orders, estimate, arguments.kenlm)
    )
    model = scorers[-1].model
    figures = beside.compare(
      store, scorers, models, num_tokens=arguments.tokens, mix=arguments.mix
    )
  elif kind == 'arpa':
    figures, model = {}, ngrams.read_file(arguments.text)
  else:
    paths = text_files.find(arguments.text)[0]
    figures, model = ngrams.of_files(
      paths, order, estimate, arguments.min_count or 1
    )
  figures = {**ngrams.describe(model), 'revision': device.revision()} | figures
  if test:
    figures |= ngrams.score_files(model, test)
  if arguments.out:
    ngrams.write(model, arguments.out)
  if arguments.output:
    files.write_atomically(arguments.output, files.as_json(figures) + '\n')
  if 'rows' in figures and not arguments.json:
    figures = beside.shown(figures)
  console.print_figures(figures, arguments.text, as_json=arguments.json)


if __name__ == '__main__':
  main()
