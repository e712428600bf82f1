"""The likeliest word pieces in place of [MASK], by a BERT.

python -m train.fill_mask WEIGHTS 'The [MASK] sat on the mat.'

If a text has several masks, each is filled while the others stay masked. For a
RoBERTa, write <mask> in place of [MASK].
"""

import argparse
import json

from train.language import inputs
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('fill_mask', __doc__, command.ALL_MODELS)
  add, _, number = command.adders(parser)
  add(
    'prompts',
    type=command.text,
    metavar='TEXT',
    nargs='*',
    help='texts with [MASK] in them, or with <mask> for a RoBERTa',
  )
  add(
    '--input',
    metavar='FILE',
    help='file with a text on each line, in place of TEXT; - is standard input',
  )
  number('--top_k', default=5, help='how many pieces to print for each mask')
  command.add_json(parser, 'JSONL')
  arguments = parser.parse_args()
  if bool(arguments.prompts) == bool(arguments.input):
    parser.error('give either texts or --input')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  prompts = arguments.prompts or inputs.read_masked(arguments.input)
  inputs.check_masked(prompts)
  from train.language import cloze
  from train.vectors.trained_model import TrainedModel

  found = TrainedModel(arguments.weights, arguments.tokenizer, use='fill_masks')
  cloze.check_model(found.model)
  filled = cloze.fill(found, prompts, top_k=arguments.top_k)
  for prompt, masks in zip(prompts, filled, strict=True):
    if arguments.json:
      guesses = [[guess._asdict() for guess in mask] for mask in masks]
      print(json.dumps({'text': prompt, 'masks': guesses}, ensure_ascii=False))
      continue
    print(prompt)
    for number, mask in enumerate(masks, start=1):
      if len(masks) > 1:
        print(f'  {found.tokenizer.mask} {number}')
      for guess in mask:
        print(f'  {guess.probability:6.4f}  {guess.piece}')


if __name__ == '__main__':
  main()
