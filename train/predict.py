"""Answers of a fine-tuned model: python -m train.predict WORKDIR ...

INPUT is a file in the task's official format, a file of a task of one's own, or
a folder of the official files: then the test set is read unless --split names
another split. The ending of OUTPUT names its format: .jsonl with probabilities,
or the format of the task's scorer or leaderboard (GLUE: .tsv, or a .zip with
one file a task; SQuAD: .json; SWAG: .csv; entities: .txt in columns; roles:
.props; coreference: .conll).
"""

import argparse

from train.host import console, files
from train.run import command

HELP = 'workdir of a finished fine-tuning; several answer together'


def main() -> None:
  """Entry point."""
  parser = command.parser('predict', __doc__)
  add = parser.add_argument
  add('workdirs', metavar='WORKDIR', nargs='+', help=HELP)
  add('--input', required=True, help='file or folder')
  add('--output', required=True, help='file to write')
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
  command.add_json(parser)
  command.main(parser.parse_args(), _run)


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
