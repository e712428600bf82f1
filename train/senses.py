"""Senses of words, told apart by their vectors in each layer.

python -m train.senses WEIGHTS SENTENCES --word WORD --out FILE.html
python -m train.senses WEIGHTS --wic FOLDER
python -m train.senses WEIGHTS --interest FOLDER

The first command compares the vectors of a word in many sentences, layer by
layer: their cosines, and a picture of their first two principal components.
Layer 0 is taken without positions and token types, so that the word has the
same vector everywhere.

The other commands print the accuracy of each layer on a labelled set. WiC asks
whether a word has the same sense in two sentences. The answer comes from a
threshold of the cosine of both vectors u and v, and from a logistic regression
of |u - v|, u * v and the cosine; both are fitted to WiC's training set. In the
set *interest*, this word gets the sense that it has in the nearest other
sentence. For an ELMo, layers 1 and 2 are compared by McNemar's exact test.
"""

import argparse

from train.host import console, files
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('senses', __doc__, command.ALL_MODELS)
  add, switch, _ = command.adders(parser)
  add(
    'sentences',
    metavar='SENTENCES',
    nargs='?',
    help='a UTF-8 file with a sentence on each line, in which the word must'
    ' occur',
  )
  add(
    '--word',
    type=command.text,
    help='the word to find; case does not matter, and a sentence may hold it'
    ' several times',
  )
  switch(
    '--running', help='SENTENCES is running text: split punctuation off words'
  )
  add('--out', metavar='FILE', help='file to write: .html, .png or .json')
  switch('--overwrite', help='replace the file of --out if it exists')
  add('--wic', metavar='FOLDER', help='folder of the files of WiC')
  add('--interest', metavar='FOLDER', help='folder that holds interest.pos')
  command.add_json(parser)
  arguments = parser.parse_args()
  of_page = ('sentences', 'word', 'out')
  given = [name for name in of_page if getattr(arguments, name) is not None]
  sets = arguments.wic is not None, arguments.interest is not None
  if (len(given) < 3 and not any(sets)) or sum(sets) + bool(given) > 1:
    parser.error('give SENTENCES, --word and --out; or --wic; or --interest')
  if not given and (arguments.running or arguments.overwrite):
    parser.error('--running and --overwrite are of SENTENCES')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  from data.tasks.senses import interest, wic

  if arguments.wic is not None:
    splits = {name: wic.read(arguments.wic, name) for name in wic.SIZES}
  elif arguments.interest is not None:
    examples = interest.read(arguments.interest)
  else:
    from train.meanings import inputs, word_map

    files.check_new(
      arguments.out, overwrite=arguments.overwrite, endings=word_map.ENDINGS
    )
    found = inputs.find_word(
      arguments.sentences, arguments.word, arguments.running
    )
    word_map.check_places(arguments.out, len(found))
  from train.meanings import sense_scores, word_vectors
  from train.vectors.trained_model import TrainedModel

  model = TrainedModel(arguments.weights, arguments.tokenizer, dtype='float32')
  if arguments.wic is not None:
    figures = sense_scores.score_pairs(model, splits)
  elif arguments.interest is not None:
    figures = sense_scores.score_senses(model, examples)
  else:
    figures = word_map.describe(
      arguments.word,
      arguments.weights,
      found,
      word_vectors.embed(model, found, positions=False),
    )
    word_map.write(figures, arguments.out)
    told = f'{len(found):,} places are in {arguments.out}'
    console.conclude(told, as_json=arguments.json)
    console.print_figures(
      word_map.summary(figures), arguments.out, as_json=arguments.json
    )
    return
  if arguments.json:
    print(files.as_json(figures))
  else:
    print(sense_scores.as_text(figures), end='')


if __name__ == '__main__':
  main()
