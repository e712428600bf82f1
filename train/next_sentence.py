"""Whether a text follows another, by a BERT's next-sentence head.

python -m train.next_sentence WEIGHTS 'It rained.' 'The streets were wet.'

Prints the probability that the second text follows the first. In pre-training,
the head has learnt to tell the text that follows from a text of another
document (Devlin et al. 2018, section 3.3.2).
"""

import argparse
import json

from train.language import inputs
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('next_sentence', __doc__, command.ALL_MODELS)
  add, switch, _ = command.adders(parser)
  for name, text in (('first', 'first text'), ('second', 'second text')):
    add(name, type=command.text, metavar='TEXT', nargs='?', help=text)
  add(
    '--input',
    metavar='FILE',
    help='file with two texts on each line and a tab between them; - is'
    ' standard input',
  )
  switch(
    '--both_orders', help='also print whether the first follows the second'
  )
  command.add_json(parser, 'JSONL')
  arguments = parser.parse_args()
  if (arguments.second is None) == (arguments.input is None):
    parser.error('give either two texts or --input')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  if arguments.input:
    pairs = inputs.read_pairs(arguments.input)
  else:
    pairs = [(arguments.first, arguments.second)]
  inputs.check_pairs(pairs)
  from train.language import next_sentences
  from train.vectors.trained_model import TrainedModel

  found = TrainedModel(arguments.weights, arguments.tokenizer, use='fill_masks')
  next_sentences.check_model(found.model)
  orders = [pairs]
  if arguments.both_orders:
    orders.append([(second, first) for first, second in pairs])
  chances = [next_sentences.probabilities(found, each) for each in orders]
  for (first, second), *values in zip(pairs, *chances, strict=True):
    names = ('follows', 'follows_in_the_other_order')
    found_here = dict(zip(names, map(float, values), strict=False))
    if arguments.json:
      record = {'first': first, 'second': second} | found_here
      print(json.dumps(record, ensure_ascii=False))
      continue
    print(f'A  {first}\nB  {second}')
    print(f'  {values[0]:6.4f}  B follows A')
    if arguments.both_orders:
      print(f'  {values[1]:6.4f}  A follows B')


if __name__ == '__main__':
  main()
