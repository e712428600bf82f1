"""What a BERT would write in place of [MASK].

python -m train.fill_mask WEIGHTS 'The [MASK] sat on the mat.' [--json]
"""

import argparse
import json

from train.host import device
from train.language import cloze
from train.params import opened, trained
from train.run import command


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.fill_mask',
    description=__doc__.partition('\n')[0],
    epilog=f'Each {cloze.MASK} of a text is filled while the others stay.',
  )
  add = parser.add_argument
  trained.add_weights(parser, trained.EMBED_HELP)
  add(
    'prompts', metavar='TEXT', nargs='*', help=f'a text with {cloze.MASK} in it'
  )
  add('--input', metavar='FILE', help='a text a line; - is standard input')
  add('--top_k', type=int, default=5, help='pieces for each mask')
  add('--json', action='store_true', help='print JSONL on standard output')
  arguments = parser.parse_args()
  if bool(arguments.prompts) == bool(arguments.input):
    parser.error('give either texts or --input')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  prompts = (
    cloze.read_prompts(arguments.input)
    if arguments.input
    else arguments.prompts
  )
  cloze.check_prompts(prompts, top_k=arguments.top_k)
  opened_weights = opened.open_weights(arguments.weights, arguments.tokenizer)
  if opened_weights.name == 'bert':
    opened_weights.check()
    cloze.check_model(opened_weights.model)
  found = trained.load(opened_weights, expected=('bert',))
  for prompt, masks in zip(
    prompts, cloze.fill(found, prompts, top_k=arguments.top_k), strict=True
  ):
    if arguments.json:
      guesses = [[guess._asdict() for guess in mask] for mask in masks]
      print(json.dumps({'text': prompt, 'masks': guesses}, ensure_ascii=False))
      continue
    print(prompt)
    for number, mask in enumerate(masks, start=1):
      if len(masks) > 1:
        print(f'  {cloze.MASK} {number}')
      for guess in mask:
        print(f'  {guess.probability:6.4f}  {guess.piece}')


if __name__ == '__main__':
  main()
