"""Log-probability of a text, or of each of several answers.

python -m train.score WEIGHTS TEXT [--context N] [--stride N]
python -m train.score WEIGHTS TEXT --by_length words [--bins 5,10,20]
python -m train.score WEIGHTS --choices FILE.jsonl

Words stand between white space. Published word perplexities (WikiText, Penn
Treebank) count each line end as a word, too: word_perplexity_with_line_ends.
"""

import argparse

from data.text import detokenize, text_files
from train.host import console, files
from train.language import inputs
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('score', __doc__, command.LANGUAGE_MODELS)
  add, _, number = command.adders(parser)
  add('text', nargs='?', metavar='TEXT', help='a UTF-8 file')
  number('--context', help='tokens seen at once; by default as many as can be')
  number('--stride', help='between windows; by default half the context')
  add(
    '--detokenizer',
    choices=sorted(detokenize.DETOKENIZERS),
    help='tokenisation to undo before scoring; by default none',
  )
  add('--log_probs', metavar='FILE', help="CSV of each token's log-probability")
  add(
    '--by_length',
    choices=('words', 'tokens'),
    help='score each line of TEXT by itself; perplexities by its length',
  )
  add('--bins', metavar='N,...', help='longest lengths; else 5,10,20,40,80')
  add(
    '--choices',
    metavar='FILE',
    help='score the choices of a JSONL file instead, which begin with a space',
  )
  command.add_json(parser)
  arguments = parser.parse_args()
  if (arguments.text is None) == (arguments.choices is None):
    parser.error('give either TEXT or --choices FILE')
  for name in ('context', 'stride', 'detokenizer', 'log_probs', 'by_length'):
    if arguments.choices and getattr(arguments, name) is not None:
      parser.error(f'--{name} is of a TEXT, not of --choices')
  if arguments.bins and not arguments.by_length:
    parser.error('--bins is of --by_length')
  if arguments.log_probs and arguments.by_length:
    parser.error('--log_probs is of a whole TEXT, not of --by_length')
  command.main(arguments, _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  files.check_writable(arguments.log_probs)
  if arguments.choices:
    questions = inputs.read_choices(arguments.choices)
  else:
    text = text_files.read_text(arguments.text)
  bins = inputs.parse_bins(arguments.bins)
  from train.language import by_length, scoring
  from train.vectors.trained_model import TrainedModel

  found = TrainedModel(arguments.weights, arguments.tokenizer, use='score')
  if arguments.choices:
    results = scoring.score_choices(found, questions)
    told = [result for result in results if 'label' in result]
    right = sum(result['choice'] == result['label'] for result in told)
    figures = {'questions': len(results)}
    if told:
      figures['accuracy'] = right / len(told)
    figures['results'] = results
  else:
    options = {
      'context': arguments.context,
      'stride': arguments.stride,
      'detokenizer': arguments.detokenizer or 'none',
    }
    if arguments.by_length:
      options |= {'unit': arguments.by_length, 'bins': bins}
      figures = by_length.score_lines(found, text, **options)
      if not arguments.json:
        figures = by_length.shown(figures)
    else:
      figures, tokens, log_probs = scoring.score_text(found, text, **options)
    if arguments.log_probs:
      scoring.write_log_probs(
        arguments.log_probs, found.tokenizer, tokens, log_probs
      )
  title = arguments.text or arguments.choices
  console.print_figures(figures, title, as_json=arguments.json)


if __name__ == '__main__':
  main()
