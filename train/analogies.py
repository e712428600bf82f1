"""Analogies and similar words: python -m train.analogies VECTORS --questions Q.

--questions FILE has analogies as questions-words.txt, scored as word2vec's own
program does: a : b = c : d is answered by the word nearest to b - a + c among
the --first words, but for a, b and c. Case does not matter; questions with an
unknown word are left out. --word_pairs FILE ... have two words and people's
score of their similarity a line (WordSim-353, SimLex-999 and others), compared
with cosines by Spearman's correlation.

--map FILE, of a word a line, draws words on a plane, by the two principal
components of their vectors, and --pairs man:woman king:queen as arrows; --out
is a page, a picture or .json, with the vectors of --beside next to these.

VECTORS is a file of vectors (GloVe's, word2vec's text or binary), a folder with
a matrix and its words, the workdir of a word2vec or GloVe, or weights of an
ELMo, GPT or BERT. Weights are judged by layer 0, the mean of the pieces of a
word without its context, or by the mean of its vectors over its contexts in a
text, layer by layer. The words that they choose from are those of --words, else
of the first file of vectors, else of --contexts.
"""

import argparse

from train.host import console, files
from train.run import command

ENDINGS = ('.html', '.png', '.json')
VECTORS = (
  'file of vectors of words, workdir, or weights as of train.embed: a folder or'
  " a name on Hugging Face's hub"
)


def main() -> None:
  """Entry point."""
  parser = command.parser('analogies', __doc__)
  add, switch, number = command.adders(parser)
  add('vectors', metavar='VECTORS', help=VECTORS)
  add('--tokenizer', metavar='PATH', help='vocabulary of the first weights')
  add('--questions', metavar='FILE', help='analogies, in sections')
  add(
    '--word_pairs',
    metavar='FILE',
    nargs='+',
    action='extend',
    default=[],
    help='pairs of words',
  )
  add(
    '--beside',
    metavar='VECTORS',
    action='append',
    default=[],
    help='other vectors in the same table; may be repeated',
  )
  add(
    '--contexts', metavar='TEXT', help='for weights: UTF-8, a sentence a line'
  )
  add(
    '--words',
    metavar='FILE',
    help='for weights: a word a line, the most frequent first',
  )
  add('--map', metavar='FILE', help='words to draw, a word a line')
  add(
    '--pairs',
    metavar='A:B',
    nargs='+',
    action='extend',
    default=[],
    type=command.text,
    help='pairs of words to draw as arrows',
  )
  add('--out', metavar='FILE', help='the map: .html, .png or .json')
  switch('--overwrite', help='replace the map')
  number('--first', default=30_000, help='words that answer an analogy')
  command.add_json(parser)
  arguments = parser.parse_args()
  asks = bool(arguments.questions is not None or arguments.word_pairs)
  draws = bool(arguments.map is not None or arguments.pairs)
  if asks == draws:
    parser.error(
      'give --questions FILE or --word_pairs FILE, or both; or, for a map,'
      ' --map FILE or --pairs A:B, or both'
    )
  if draws and arguments.words is not None:
    parser.error('--words is of --questions: a map has the words of --map')
  if draws != (arguments.out is not None):
    parser.error('--out goes with --map or --pairs')
  command.main(arguments, _draw if draws else _run)


def _draw(arguments: argparse.Namespace) -> None:
  """Draws words on a plane."""
  # Bad input shows before a model is loaded.
  files.check_new(arguments.out, overwrite=arguments.overwrite, endings=ENDINGS)
  from train.meanings.words import plane, sources
  from train.vectors import text_counts

  pairs = plane.parse_pairs(arguments.pairs)
  words = []
  if arguments.map is not None:
    words = sources.read_words(arguments.map, arguments.first)
  words = plane.words_of(words, pairs)
  if arguments.contexts is not None:
    text_counts.count_lines(arguments.contexts)
  names = [arguments.vectors, *arguments.beside]
  _check_options(names, arguments)
  from train.meanings.words import comparison

  tables = comparison.read(
    names,
    words,
    0,
    contexts=arguments.contexts,
    tokenizer=arguments.tokenizer,
    words=() if arguments.contexts else None,
  )
  maps = [
    found
    for name, vectors in tables
    for found in plane.describe(name, vectors, words, pairs)
  ]
  figures = {'contexts': arguments.contexts, 'maps': maps}
  plane.write(arguments.out, figures)
  if arguments.json:
    console.show(files.as_json(figures))
  else:
    for line in plane.as_text(figures):
      console.show(line)
  console.say(f'the map is {arguments.out}')


def _check_options(names: list[str], arguments: argparse.Namespace) -> None:
  """Checks that options of weights do not come with files alone."""
  from train.meanings.words import sources

  if None in map(sources.find_file, names):
    return
  for option in ('tokenizer', 'words', 'contexts'):
    if getattr(arguments, option) is not None:
      raise ValueError(
        f'--{option} is of weights, and all vectors are in files; leave it out'
      )


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before a model is loaded.
  from data.tasks.words import analogies, pairs
  from train.meanings.words import sources
  from train.vectors import text_counts

  sections = []
  if arguments.questions is not None:
    sections = analogies.read(arguments.questions)
  sets = pairs.read_all(arguments.word_pairs)
  words = None
  if arguments.words is not None:
    words = sources.read_words(arguments.words, arguments.first)
  if arguments.contexts is not None:
    text_counts.count_lines(arguments.contexts)
  names = [arguments.vectors, *arguments.beside]
  _check_options(names, arguments)
  from train.meanings.words import comparison, scores

  tables = comparison.read(
    names,
    sorted(
      {word for each in sets.values() for pair in each for word in pair[:2]}
    ),
    arguments.first if sections else 0,
    words=words,
    contexts=arguments.contexts,
    tokenizer=arguments.tokenizer,
  )
  figures = {
    'first': arguments.first,
    'contexts': arguments.contexts,
    'vectors': [
      {'name': name, **scores.score(name, vectors, sections, sets)}
      for name, vectors in tables
    ],
  }
  text = files.as_json(figures) if arguments.json else scores.as_text(figures)
  print(text.rstrip())


if __name__ == '__main__':
  main()
