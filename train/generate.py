"""Continues texts: python -m train.generate WEIGHTS --prompt TEXT.

--table N also prints the N likeliest tokens at each step, with the
probabilities that the model gives them before --temperature, --top_k and
--top_p.
"""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from train.host import console, files
from train.language import inputs
from train.run import command

if TYPE_CHECKING:
  from train.language.surprise import Token
  from train.vectors.trained_model import TrainedModel

OPTIONS = ('max_new_tokens', 'seed', 'samples', 'stop', 'overflow', 'batch')


def main() -> None:
  """Entry point."""
  parser = command.parser('generate', __doc__, command.LANGUAGE_MODELS)
  add, _, number = command.adders(parser)
  add(
    '--prompt',
    type=command.text,
    action='append',
    help='a text to continue; may be repeated',
  )
  add(
    '--input',
    metavar='FILE',
    help='JSONL file with a "prompt" on each line; - is standard input',
  )
  add(
    '--output',
    metavar='FILE',
    help='JSONL file to write, with prompts and continuations',
  )
  number(
    '--max_new_tokens',
    default=100,
    help='largest number of tokens of a continuation',
  )
  add(
    '--temperature',
    type=float,
    default=1.0,
    help='divides the logits before a token is sampled; 0 takes the likeliest',
  )
  add(
    '--top_k',
    type=int,
    default=0,
    help='sample from this many of the likeliest tokens; 0: from all',
  )
  add(
    '--top_p',
    type=float,
    default=1.0,
    help='sample from the fewest tokens that together have this probability',
  )
  add(
    '--stop',
    action='append',
    default=[],
    help='text that ends a continuation, and is cut off; may be repeated',
  )
  add('--seed', type=int, default=0, help='random seed of the sampling')
  number('--samples', default=1, help='continuations of each prompt')
  number('--batch', default=8, help='continuations computed at a time')
  add(
    '--overflow',
    choices=inputs.OVERFLOWS,
    default='refuse',
    help="if a text exceeds the model's positions: refuse it, or forget its"
    ' oldest tokens (slide)',
  )
  number(
    '--table',
    metavar='N',
    help='also print the N likeliest tokens at each step',
  )
  command.add_json(parser, 'JSONL')
  arguments = parser.parse_args()
  if bool(arguments.prompt) == bool(arguments.input):
    parser.error('give either --prompt or --input')
  if arguments.table and arguments.overflow == 'slide':
    parser.error('--table is of tokens that all stay: not of --overflow slide')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  files.check_writable(arguments.output)
  records = (
    inputs.read_prompts(arguments.input)
    if arguments.input
    else [{'prompt': prompt} for prompt in arguments.prompt]
  )
  from models.decoding import Sampling
  from train.language import completions, surprise
  from train.vectors.trained_model import TrainedModel

  sampling = Sampling(arguments.temperature, arguments.top_k, arguments.top_p)
  found = TrainedModel(arguments.weights, arguments.tokenizer, use='generate')
  if arguments.table:
    surprise.check_top(found, '--table', arguments.table)
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
  tables = [None] * len(written)
  if arguments.table:
    tables = _tables(found, records, written, arguments)
  if streams:
    show('\n')
    for line in surprise.as_table(tables[0] or ()):
      console.show(line)
    return
  repeated = [record for record in records for _ in range(arguments.samples)]
  rows = list(zip(repeated, written, tables, strict=True))
  if plain:
    for record, completion, tokens in rows:
      console.show(f'{record["prompt"]}{completion.text}')
      for line in surprise.as_table(tokens or ()):
        console.show(line)
      console.show('-' * 40)
    return
  lines = ''.join(
    json.dumps(
      record
      | completion._asdict()
      | ({} if tokens is None else {'table': [x.as_dict() for x in tokens]}),
      ensure_ascii=False,
    )
    + '\n'
    for record, completion, tokens in rows
  )
  if arguments.json:
    print(lines, end='')
  if arguments.output:
    files.write_atomically(arguments.output, lines)
    told = f'{len(written)} texts are in {arguments.output}'
    console.conclude(told, as_json=arguments.json)


def _tables(
  found: 'TrainedModel',
  records: list[dict[str, files.Json]],
  written: list[inputs.Completion],
  arguments: argparse.Namespace,
) -> list[list['Token']]:
  """Returns the tokens of each continuation with the likeliest in place."""
  from train.language import surprise

  encoded = found.encode([record['prompt'] for record in records])
  return [
    surprise.continued(
      found,
      encoded[number // arguments.samples],
      completion.tokens,
      top=arguments.table,
    )
    for number, completion in enumerate(written)
  ]


if __name__ == '__main__':
  main()
