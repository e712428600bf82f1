"""N-grams of a text, and a table of perplexities beside neural models.

python -m train.ngram STORE --beside WORKDIR WORKDIR ...   one table
python -m train.ngram WORKDIR                              a run and n-grams
python -m train.ngram 'books/*.txt' --test my.txt --out books.arpa
python -m train.ngram books.arpa --test my.txt

With a token store, n-grams of the orders 1 to n are counted in its training
text, and score its held-out text, as do the models of --beside. With the
workdir of a run, its token store is read, and its model scores the text, too.
--tokens, --mix, --kenlm and --arpa are for these tables. With text files (a
text on each line, white space between words), the n-grams are counted in the
files. An ARPA file, by Sesame or another program, is only read.
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
  number(
    '--order',
    help='n, the largest order of the n-grams; by default 5',
  )
  add(
    '--smoothing',
    metavar='NAME[:NUMBER,...]',
    help='modified_kneser_ney (the default), kneser_ney[:discount], katz,'
    ' jelinek_mercer[:weight,...], add_k[:k] or maximum_likelihood',
  )
  number(
    '--min_count',
    help='for text files: rarer words count as unknown; by default 1',
  )
  add(
    '--test',
    metavar='FILES',
    help='for text files and .arpa: text files to score, a text on each line',
  )
  add(
    '--out',
    metavar='FILE.arpa[.gz]',
    help='write the n-grams as an ARPA file',
  )
  add(
    '--beside',
    nargs='+',
    action='extend',
    metavar='WORKDIR',
    help='workdirs of models that were trained on the same token store',
  )
  number(
    '--tokens',
    help='how many held-out tokens to score, in passages; by default all',
  )
  add(
    '--mix',
    type=float,
    help='weight of the n-grams, 0 to 1, in mixtures with models that read from'
    ' left to right; by default each half of the tokens has the weight that'
    ' fits the other half best',
  )
  add(
    '--kenlm',
    metavar='BIN',
    help="folder of KenLM's program lmplz, which then estimates the n-grams,"
    ' only of order n',
  )
  add(
    '--arpa',
    metavar='FILE.arpa',
    help='read the n-grams of the table from this file, and count none',
  )
  add('--output', metavar='FILE', help='JSON file for the results')
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
  test = text_files.find_running(arguments.test) if arguments.test else []
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
    paths = text_files.find_running(arguments.text)
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
