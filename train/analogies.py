"""Analogies and similar words: python -m train.analogies VECTORS --questions Q.

--questions FILE has analogies as questions-words.txt, scored as word2vec's own
program does: a : b = c : d is answered by the word nearest to b - a + c among
the --first words, but for a, b and c. Case does not matter; questions with an
unknown word are left out. --word_pairs FILE ... have two words and people's
score of their similarity a line (WordSim-353, SimLex-999 and others), compared
with cosines by Spearman's correlation.

VECTORS is a file of vectors (GloVe's, word2vec's text or binary), a folder with
a matrix and its words, the workdir of a word2vec or GloVe, or weights of an
ELMo, GPT or BERT. Weights are judged by layer 0, the mean of the pieces of a
word without its context, or by the mean of its vectors over its contexts in a
text, layer by layer. The words that they choose from are those of --words, else
of the first file of vectors, else of --contexts.
"""

import argparse

from train.host import files
from train.run import command

VECTORS = (
  'file of vectors of words, workdir, or weights as of train.embed: a folder or'
  " a name on Hugging Face's hub"
)


def main() -> None:
  """Entry point."""
  parser = command.parser('analogies', __doc__)
  add, _, number = command.adders(parser)
  add('vectors', metavar='VECTORS', help=VECTORS)
  add('--tokenizer', metavar='PATH', help='vocabulary of the first weights')
  add('--questions', metavar='FILE', help='analogies, in sections')
  add(
    '--word_pairs', metavar='FILE', nargs='+', default=[], help='pairs of words'
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
  number('--first', default=30_000, help='words that answer an analogy')
  command.add_json(parser)
  arguments = parser.parse_args()
  if arguments.questions is None and not arguments.word_pairs:
    parser.error('give --questions FILE or --word_pairs FILE, or both')
  command.main(arguments, _run)


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
  if None not in map(sources.find_file, names):
    for option in ('tokenizer', 'words', 'contexts'):
      if getattr(arguments, option) is not None:
        raise ValueError(
          f'--{option} is of weights, and all vectors are in files; leave it'
          ' out'
        )
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
