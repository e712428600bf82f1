"""Analogies and similar words: python -m train.analogies VECTORS --questions Q.

--questions FILE holds analogies in the format of questions-words.txt. They are
scored as by word2vec's own program: a : b = c : d is right if d is the word
nearest to b - a + c, among the --first words without a, b and c. Case does not
matter; questions with an unknown word are left out. --word_pairs FILE ... hold
two words and people's score of their similarity on each line (WordSim-353,
SimLex-999 and others). These scores are compared with the cosines of the
vectors by Spearman's correlation.

--map FILE, with a word on each line, draws words on a plane, by the first two
principal components of their vectors. --pairs man:woman king:queen draws an
arrow from the first word of each pair to the second. --out is a page, a picture
or a .json file; it shows the vectors of each --beside, too.

VECTORS is a file of word vectors (GloVe's, or word2vec's text or binary
format), a folder with a matrix and its words, the workdir of a word2vec or
GloVe, or the weights of an ELMo, GPT or BERT. With such weights, the vector of
a word is taken from layer 0: the mean over its pieces, without a context. With
--contexts TEXT, each layer is scored, by the mean vector of a word over all its
places in the text. Weights have no list of words that may answer an analogy:
--words gives it, or else the first file of vectors, or else --contexts.
"""

import argparse

from train.host import console, files
from train.run import command

ENDINGS = ('.html', '.png', '.json')
VECTORS = (
  'a file of word vectors, a workdir (the folder of a run), a folder of'
  " published weights, or a name on Hugging Face's hub"
)


def main() -> None:
  """Entry point."""
  parser = command.parser('analogies', __doc__)
  add, switch, number = command.adders(parser)
  add('vectors', metavar='VECTORS', help=VECTORS)
  add(
    '--tokenizer',
    metavar='PATH',
    help='the vocabulary of the first weights, if it is not in their folder',
  )
  add(
    '--questions',
    metavar='FILE',
    help='analogies: a line ": NAME" begins a section, all other lines have'
    ' four words',
  )
  add(
    '--word_pairs',
    metavar='FILE',
    nargs='+',
    action='extend',
    default=[],
    help='files with two words and a score of their similarity on each line',
  )
  add(
    '--beside',
    metavar='VECTORS',
    action='append',
    default=[],
    help='other vectors for the same table or map; may be repeated',
  )
  add(
    '--contexts',
    metavar='TEXT',
    help='for weights: a UTF-8 file with a sentence on each line; a word has'
    ' the mean of its vectors in this text',
  )
  add(
    '--words',
    metavar='FILE',
    help='for weights: the words that may answer an analogy, one on each line,'
    ' the most frequent first',
  )
  add('--map', metavar='FILE', help='words to draw, one on each line')
  add(
    '--pairs',
    metavar='A:B',
    nargs='+',
    action='extend',
    default=[],
    type=command.text,
    help='pairs of words to draw as arrows',
  )
  add('--out', metavar='FILE', help='file for the map: .html, .png or .json')
  switch('--overwrite', help='replace the file of --out if it exists')
  number(
    '--first',
    default=30_000,
    help='how many words, the most frequent ones, may answer an analogy',
  )
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
  console.conclude(f'the map is {arguments.out}', as_json=arguments.json)


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
