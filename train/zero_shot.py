"""GPT-2's zero-shot tasks: prompts, answers and scores (Radford et al. 2019).

python -m train.zero_shot WEIGHTS coqa coqa-dev-v1.0.json
python -m train.zero_shot WEIGHTS summarize cnn/stories
python -m train.zero_shot WEIGHTS translate newstest2014.fr newstest2014.en

Nothing is trained: a task is stated in the prompt, and the model goes on.
"""

import argparse
import importlib.util

from models.decoding import Sampling
from train.host import console, device, files
from train.language import zero_shot
from train.params import trained
from train.run import command


def main() -> None:
  """Entry point."""
  parser = argparse.ArgumentParser(
    prog='python -m train.zero_shot', description=__doc__.partition('\n')[0]
  )
  trained.add_weights(parser, trained.HELP)
  tasks = parser.add_subparsers(dest='task', required=True)
  coqa = tasks.add_parser('coqa', help='reading comprehension')
  coqa.add_argument('data', metavar='FILE', help='coqa-dev-v1.0.json')
  summarize = tasks.add_parser('summarize', help='news articles')
  summarize.add_argument(
    'data', metavar='FOLDER', help='of .story files, or a JSONL file'
  )
  summarize.add_argument('--urls', metavar='FILE', help='such as all_test.txt')
  translate = tasks.add_parser('translate', help='sentences')
  translate.add_argument('data', metavar='SOURCE', help='a sentence a line')
  translate.add_argument('target', metavar='TARGET', help='their translations')
  for task in (coqa, summarize, translate):
    task.add_argument('--limit', type=int, help='only the first so many')
    task.add_argument('--batch', type=int, default=8, help='prompts at a time')
    task.add_argument(
      '--json', action='store_true', help='print JSON on standard output'
    )
  arguments = parser.parse_args()
  device.enable_compilation_cache()
  command.run(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
  limit = slice(arguments.limit)
  if arguments.limit is not None and arguments.limit < 1:
    raise ValueError(f'--limit={arguments.limit}: expected 1 or more')
  # Bad input shows before the model is loaded.
  needed = zero_shot.PACKAGES.get(arguments.task)
  if needed and importlib.util.find_spec(needed) is None:
    raise ValueError(
      f'{arguments.task} is scored by {needed}, which cannot be found here: pip'
      " install 'sesame-lm[zero_shot]'"
    )
  if arguments.task == 'coqa':
    given = zero_shot.read_coqa(arguments.data)[limit]
    run, options = zero_shot.run_coqa, {'max_new_tokens': 32, 'stop': ('\n',)}
  elif arguments.task == 'summarize':
    given = zero_shot.read_stories(arguments.data, arguments.urls)[limit]
    sampling = Sampling(top_k=2)  # Radford et al. 2019, section 3.6
    run, options = (
      zero_shot.run_summaries,
      {'max_new_tokens': 100, 'sampling': sampling},
    )
  else:
    given = zero_shot.read_parallel(arguments.data, arguments.target)[limit]
    run, options = (
      zero_shot.run_translation,
      {'max_new_tokens': 100, 'stop': ('\n',)},
    )
  if not given:
    raise ValueError(f'{arguments.data}: holds nothing to do')
  found = trained.load(
    arguments.weights,
    expected=trained.LEFT_TO_RIGHT,
    tokenizer=arguments.tokenizer,
  )
  if arguments.task == 'summarize':
    given = zero_shot.shorten_articles(found, given, options['max_new_tokens'])
  report = run(
    given, zero_shot.completer(found, batch=arguments.batch, **options)
  )
  if arguments.json:
    print(files.as_json(report))
    return
  figures = {
    name: value for name, value in report.items() if not isinstance(value, list)
  }
  console.figures_table(figures, f'{arguments.task}: {arguments.data}')


if __name__ == '__main__':
  main()
