"""Continues texts: python -m train.generate WEIGHTS --prompt TEXT."""

import argparse
import json
import sys

from train.host import console, files
from train.language import inputs
from train.run import command

OPTIONS = ('max_new_tokens', 'seed', 'samples', 'stop', 'overflow', 'batch')


def main() -> None:
  """Entry point."""
  parser = command.parser('generate', __doc__, command.LANGUAGE_MODELS)
  add, _, number = command.adders(parser)
  add(
    '--prompt',
    type=command.text,
    action='append',
    help='a text to continue; repeatable',
  )
  add('--input', metavar='FILE', help='JSONL, a "prompt" a line; - is stdin')
  add('--output', metavar='FILE', help='JSONL of prompts and continuations')
  number('--max_new_tokens', default=100, help='of each continuation')
  add('--temperature', type=float, default=1.0, help='0 is greedy')
  add('--top_k', type=int, default=0, help='likeliest tokens to draw; 0: all')
  add('--top_p', type=float, default=1.0, help='or tokens of this probability')
  add('--stop', action='append', default=[], help='ends a continuation')
  add('--seed', type=int, default=0, help='of the draws')
  number('--samples', default=1, help='texts for each prompt')
  number('--batch', default=8, help='texts at a time')
  add(
    '--overflow',
    choices=inputs.OVERFLOWS,
    default='refuse',
    help="beyond the model's positions: refuse, or forget the oldest tokens",
  )
  command.add_json(parser, 'JSONL')
  arguments = parser.parse_args()
  if bool(arguments.prompt) == bool(arguments.input):
    parser.error('give either --prompt or --input')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  files.check_writable(arguments.output)
  records = (
    inputs.read_prompts(arguments.input)
    if arguments.input
    else [{'prompt': prompt} for prompt in arguments.prompt]
  )
  from models.decoding import Sampling
  from train.language import completions
  from train.vectors.trained_model import TrainedModel

  sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p)
  found = TrainedModel(arguments.weights, arguments.tokenizer, use='generate')
  plain = not (arguments.json or arguments.output)
  streams = plain and len(records) == 1 and arguments.samples == 1
  begun = []  # the prompt is shown once it is known to be sound

  def show(text: str) -> None:
    if not begun:
      begun.append(sys.stdout.write(records[0]['prompt']))
    sys.stdout.write(text)
    sys.stdout.flush()

  written = completions.complete(
    found,
    [record['prompt'] for record in records],
    sampling=sampling,
    show=show if streams else None,
    **{name: getattr(arguments, name) for name in OPTIONS},
  )
  if streams:
    show('\n')
    return
  repeated = [record for record in records for _ in range(arguments.samples)]
  pairs = list(zip(repeated, written, strict=True))
  if plain:
    for record, completion in pairs:
      print(f'{record["prompt"]}{completion.text}\n{"-" * 40}')
    return
  lines = ''.join(
    json.dumps(record | completion._asdict(), ensure_ascii=False) + '\n'
    for record, completion in pairs
  )
  if arguments.json:
    print(lines, end='')
  if arguments.output:
    files.write_atomically(arguments.output, lines)
    console.say(f'{len(written)} texts are in {arguments.output}')


if __name__ == '__main__':
  main()
