"""Answers of a fine-tuned model: python -m train.predict WORKDIR ...

python -m train.predict WORKDIR --input FILE --output FILE
python -m train.predict WORKDIR --text 'A fine film.'
python -m train.predict WORKDIR --question 'Who wrote it?' --context FILE

INPUT is a file in the task's official format, a file of a task of one's own, or
a folder of the official files: then the test set is read unless --split names
another split. The ending of OUTPUT names its format: .jsonl with probabilities,
or the format of the task's scorer or leaderboard (GLUE: .tsv, or a .zip with
one file a task; SQuAD: .json; SWAG: .csv; entities: .txt in columns; roles:
.props; coreference: .conll).

One input of the command line is answered at once, with probabilities: --text,
once or twice, as the task has texts; --text, perhaps --question, and --choice
for each choice; --question and --context; --words of a sentence, for roles with
--predicate, for coreference once a sentence.
"""

import argparse

from data.text import text_files
from train.host import console, files
from train.run import command

HELP = 'workdir of a finished fine-tuning; several answer together'
ONE_INPUT = ('text', 'question', 'context', 'choice', 'words', 'predicate')
OF_FILES = ('output', 'split', 'n_best', 'both_orders', 'null_odds')
TOP = 5  # answers shown of one input


def main() -> None:
  """Entry point."""
  parser = command.parser('predict', __doc__)
  add = parser.add_argument
  add('workdirs', metavar='WORKDIR', nargs='+', help=HELP)
  add('--input', help='file or folder')
  add('--output', help='file to write')
  add('--split', help="of the official files; by default the file's, or test")
  add('--task', help='of a model of several tasks, the one to answer')
  add('--n_best', metavar='FILE', help='SQuAD: write the best answers too')
  add(
    '--both_orders',
    action='store_true',
    help='of pairs of texts: OUTPUT has the mean of (a, b) and (b, a); prints'
    ' the scores of each order and the share of answers that it changes',
  )
  add('--null_odds', metavar='FILE', help='SQuAD 2.0: scores of no answer')
  text = {'type': command.text, 'metavar': 'TEXT'}
  more = {'action': 'append', 'default': []}
  add('--text', help='one input: a text; repeatable', **text, **more)
  add('--question', default='', help='one input: a question', **text)
  add('--context', metavar='FILE', help='the text with the answer; - is stdin')
  add('--choice', help='one input: a choice; repeatable', **text, **more)
  add(
    '--words',
    nargs='+',
    type=command.text,
    metavar='WORD',
    help='one input: the words of a sentence; repeatable',
    **more,
  )
  add('--predicate', default='', help='roles: the word, or its number', **text)
  add('--top', type=command.positive, metavar='N', help='answers to show')
  command.add_json(parser)
  arguments = parser.parse_args()
  one = [name for name in ONE_INPUT if getattr(arguments, name)]
  if one and arguments.top is None:
    arguments.top = TOP
  if bool(one) == bool(arguments.input):
    parser.error(
      'give either --input and --output, or one input by --text, --question'
      ' and --context, or --words'
    )
  for name in OF_FILES if one else ('top',):
    if getattr(arguments, name):
      of = '--input' if one else 'one input of the command line'
      parser.error(f'--{name} is of {of}')
  if not one and not arguments.output:
    parser.error('--input needs --output')
  command.main(arguments, _answer_one if one else _run)


def _answer_one(arguments: argparse.Namespace) -> None:
  context = ''
  if arguments.context:
    context = text_files.read_text(arguments.context)
  for name in ('text', 'choice', 'question'):
    value = getattr(arguments, name)
    for each in value if isinstance(value, list) else [value]:
      if value and not each.strip():
        raise ValueError(f'--{name} is empty: {each!r}')
  from train.transfer import one_input

  shown = one_input.answer(
    arguments.workdirs,
    one_input.Given(
      arguments.text,
      arguments.question,
      context,
      arguments.choice,
      arguments.words,
      arguments.predicate,
    ),
    task_name=arguments.task,
    top=arguments.top,
  )
  if arguments.json:
    console.show(files.as_json(shown))
    return
  for line in one_input.as_text(shown):
    console.show(line)


def _run(arguments: argparse.Namespace) -> None:
  for path in (arguments.output, arguments.n_best, arguments.null_odds):
    files.check_writable(path)
  from etils import epath

  from data.scoring import scores, submissions
  from data.tasks import registry
  from data.tasks.examples import Example, Task
  from train.transfer import predictors

  def split_of(task: Task) -> str:
    path = epath.Path(arguments.input)
    named = None if path.is_dir() else registry.split_of(task, path)
    return arguments.split or named or 'test'

  def read(task: Task) -> list[Example]:
    n_best = bool(arguments.n_best or arguments.null_odds)
    submissions.check_format(
      task, arguments.output, split_of(task), n_best=n_best
    )
    return predictors.read_input(task, arguments.input, split_of(task))

  if arguments.null_odds:
    predictors.check_null_odds(arguments.workdirs)
  run = predictors.predict
  if arguments.both_orders:
    run = predictors.predict_both_orders
  task, split, predictions = run(arguments.workdirs, read, arguments.task)
  examples, name = split.examples, split_of(task)
  found = {}
  if arguments.both_orders:
    found = predictors.compare_orders(task, split, predictions)
    predictions = predictions.mean
  elif split.is_labelled:
    found = scores.score(task, examples, predictions)
  submissions.write(
    task,
    name,
    examples,
    predictions,
    arguments.output,
    n_best_path=arguments.n_best,
    null_odds_path=arguments.null_odds,
  )
  console.say(f'{len(predictions):,} answers are in {arguments.output}')
  if found:
    console.print_figures(
      found, f'{task.title}, {name}', as_json=arguments.json
    )


if __name__ == '__main__':
  main()
