"""How likely a model finds a text, or each of several answers.

python -m train.score WEIGHTS TEXT [--context N] [--stride N] [--json]
python -m train.score WEIGHTS --choices FILE.jsonl [--json]
"""

import argparse

from data.text import detokenize, text_files
from train.host import console, device, files
from train.language import scoring
from train.params import trained
from train.run import command


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.score', description=__doc__.partition('\n')[0]
  )
  trained.add_weights(parser, trained.HELP)
  parser.add_argument('text', nargs='?', metavar='TEXT', help='a UTF-8 file')
  parser.add_argument(
    '--context', type=int, help='tokens seen at once; by default all it can'
  )
  parser.add_argument(
    '--stride', type=int, help='between windows; by default half the context'
  )
  parser.add_argument(
    '--detokenizer',
    choices=sorted(detokenize.DETOKENIZERS),
    help='what to undo before scoring; by default none',
  )
  parser.add_argument(
    '--log_probs', metavar='FILE', help="CSV of every token's log-probability"
  )
  parser.add_argument(
    '--choices',
    metavar='FILE',
    help='score the choices of a JSONL file instead, which begin with a space',
  )
  parser.add_argument(
    '--json', action='store_true', help='print JSON on standard output'
  )
  arguments = parser.parse_args()
  if (arguments.text is None) == (arguments.choices is None):
    parser.error('give either TEXT or --choices FILE')
  for name in ('context', 'stride', 'detokenizer', 'log_probs'):
    if arguments.choices and getattr(arguments, name) is not None:
      parser.error(f'--{name} is of a TEXT, not of --choices')
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  files.check_writable(arguments.log_probs)
  if arguments.choices:
    questions = scoring.read_choices(arguments.choices)
  else:
    text = text_files.read_text(arguments.text)
  found = trained.load(
    arguments.weights, expected=trained.SCORING, tokenizer=arguments.tokenizer
  )
  if arguments.choices:
    results = scoring.score_choices(found, questions)
    told = [result for result in results if 'label' in result]
    right = sum(result['choice'] == result['label'] for result in told)
    figures = {'questions': len(results)}
    if told:
      figures['accuracy'] = right / len(told)
    report = figures | {'results': results}
  else:
    figures, tokens, log_probs = scoring.score_text(
      found,
      text,
      context=arguments.context,
      stride=arguments.stride,
      detokenizer=arguments.detokenizer or 'none',
    )
    if arguments.log_probs:
      scoring.write_log_probs(
        arguments.log_probs, found.tokenizer, tokens, log_probs
      )
    report = figures
  if arguments.json:
    print(files.as_json(report))
  else:
    console.figures_table(figures, arguments.text or arguments.choices)


if __name__ == '__main__':
  main()
