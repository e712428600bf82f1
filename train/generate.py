"""Continues texts: python -m train.generate WEIGHTS --prompt TEXT."""

import argparse
import json
import sys

from models.decoding import Sampling
from train.host import console, device, files
from train.language import completions
from train.params import trained
from train.run import command


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.generate', description=__doc__
  )
  add = parser.add_argument
  trained.add_weights(parser, trained.HELP)
  add('--prompt', action='append', help='a text to go on from; repeatable')
  add('--input', metavar='FILE', help='JSONL, a "prompt" a line; - is stdin')
  add('--output', metavar='FILE', help='JSONL of the prompts with their texts')
  add('--max_new_tokens', type=int, default=100)
  add('--temperature', type=float, default=1.0, help='0 is greedy')
  add('--top_k', type=int, default=0, help='draw among so many; 0: all')
  add('--top_p', type=float, default=1.0, help='or among so much probability')
  add('--stop', action='append', default=[], help='a text that ends another')
  add('--seed', type=int, default=0)
  add('--samples', type=int, default=1, help='texts a prompt')
  add('--batch', type=int, default=8, help='texts written at a time')
  add(
    '--overflow',
    choices=completions.OVERFLOWS,
    default='refuse',
    help="beyond the model's positions: refuse, or forget the oldest tokens",
  )
  add('--json', action='store_true', help='print JSONL on standard output')
  arguments = parser.parse_args()
  if bool(arguments.prompt) == bool(arguments.input):
    parser.error('give either --prompt or --input')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  files.check_writable(arguments.output)
  sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p)
  records = (
    completions.read_prompts(arguments.input)
    if arguments.input
    else [{'prompt': prompt} for prompt in arguments.prompt]
  )
  found = trained.load(
    arguments.weights,
    expected=trained.LEFT_TO_RIGHT,
    tokenizer=arguments.tokenizer,
  )
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
    max_new_tokens=arguments.max_new_tokens,
    sampling=sampling,
    seed=arguments.seed,
    samples=arguments.samples,
    stop=arguments.stop,
    overflow=arguments.overflow,
    batch=arguments.batch,
    show=show if streams else None,
  )
  if streams:
    show('\n')
    return
  repeated = [record for record in records for _ in range(arguments.samples)]
  if plain:
    for record, completion in zip(repeated, written, strict=True):
      print(f'{record["prompt"]}{completion.text}\n{"-" * 40}')
    return
  lines = ''.join(
    json.dumps(record | completion._asdict(), ensure_ascii=False) + '\n'
    for record, completion in zip(repeated, written, strict=True)
  )
  if arguments.json:
    print(lines, end='')
  if arguments.output:
    files.write_atomically(arguments.output, lines)
    console.say(f'{len(written)} texts are in {arguments.output}')


if __name__ == '__main__':
  main()
