"""Answers of a fine-tuned model: python -m train.predict WORKDIR ...

python -m train.predict WORKDIR --input FILE --output FILE
python -m train.predict WORKDIR --text 'A fine film.'
python -m train.predict WORKDIR --question 'Who wrote it?' --context FILE

--input is a file in the official format of the task, a file of a task of your
own, or a folder of the official files, of which the test set is read unless
--split names another split. For a task of your own it may be a data set of
Hugging Face, too: hf:NAME[:CONFIG][:SPLIT], without SPLIT its only split or
else train, or the folder in which save_to_disk left a split.

The ending of --output chooses its format: .jsonl with probabilities, or the
format of the task's scorer or leaderboard (GLUE: .tsv, or .zip, which collects
the files of all tasks; SQuAD: .json; SWAG: .csv; entities: .txt in columns;
roles: .props; coreference: .conll).

One input on the command line is answered at once, with probabilities. Its
options depend on the task:

  one or two texts   --text, once or twice
  choices            --text, perhaps --question, and --choice for each choice
  questions          --question and --context
  tags               --words
  semantic roles     --words and --predicate
  coreference        --words, once for each sentence
"""

import argparse

from data.text import text_files
from train.host import console, files
from train.run import command

HELP = 'workdir of a finished fine-tuning; several answer as an ensemble'
ONE_INPUT = ('text', 'question', 'context', 'choice', 'words', 'predicate')
OF_FILES = ('output', 'split', 'n_best', 'both_orders', 'null_odds')
TOP = 5  # answers shown of one input


def main() -> None:
  """Entry point."""
  parser = command.parser('predict', __doc__)
  add = parser.add_argument
  add('workdirs', metavar='WORKDIR', nargs='+', help=HELP)
  add('--input', help='file or folder to read, or hf:NAME[:CONFIG][:SPLIT]')
  add('--output', help='file to write')
  add(
    '--split',
    help='split to read, such as dev; by default the split that the name of the'
    ' file tells, else test',
  )
  add('--task', help='task to answer, for a model of several tasks')
  add(
    '--n_best',
    metavar='FILE',
    help='for SQuAD: also write the best answers to each question, as JSON',
  )
  add(
    '--both_orders',
    action='store_true',
    help='for pairs of texts: read each pair as (a, b) and as (b, a); write the'
    ' mean of both, and print the scores of each order and the share of answers'
    ' that the order changes',
  )
  add(
    '--null_odds',
    metavar='FILE',
    help='for SQuAD 2.0: also write, for each question, the score of no answer'
    ' minus the score of the best answer, as JSON',
  )
  text = {'type': command.text, 'metavar': 'TEXT'}
  more = {'action': 'append', 'default': []}
  add('--text', help='one input: a text; may be repeated', **text, **more)
  add('--question', default='', help='one input: a question', **text)
  add(
    '--context',
    metavar='FILE',
    help='one input: file of the text that holds the answer; - is standard'
    ' input',
  )
  add('--choice', help='one input: a choice; may be repeated', **text, **more)
  add(
    '--words',
    nargs='+',
    type=command.text,
    metavar='WORD',
    help='one input: the words of a sentence; may be repeated',
    **more,
  )
  add(
    '--predicate',
    default='',
    help='one input, semantic roles: the predicate, a word of --words, or its'
    ' number, from 1',
    **text,
  )
  add(
    '--top',
    type=command.positive,
    metavar='N',
    help=f'one input: how many answers to print; by default {TOP}',
  )
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

  from data.scoring import scores, submissions
  from data.tasks import files as task_files
  from data.tasks import registry
  from data.tasks.examples import Example, Task
  from train.transfer import predictors

  def split_of(task: Task) -> str:
    path, named = task_files.path_of(arguments.input), None
    if not (path.is_dir() or task_files.is_named(arguments.input)):
      named = registry.split_of(task, path)
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
  told = f'{len(predictions):,} answers are in {arguments.output}'
  console.conclude(told, as_json=arguments.json)
  if found:
    of_set = task_files.is_named(arguments.input)
    title = f'{task.title}, {arguments.input if of_set else name}'
    console.print_figures(found, title, as_json=arguments.json)


if __name__ == '__main__':
  main()
