"""GPT-2's zero-shot tasks: prompts, answers and scores (Radford et al. 2019).

python -m train.zero_shot WEIGHTS coqa coqa-dev-v1.0.json
python -m train.zero_shot WEIGHTS summarize cnn/stories
python -m train.zero_shot WEIGHTS translate newstest2014.fr newstest2014.en

Nothing is trained: the prompt states the task, and the model continues it.
"""

import argparse
import importlib.util
from collections.abc import Sequence

from train.host import console
from train.language import zero_shot
from train.run import command


def main() -> None:
  """Entry point."""
  parser = command.parser('zero_shot', __doc__, command.LANGUAGE_MODELS)
  tasks = parser.add_subparsers(dest='task', metavar='TASK', required=True)
  coqa = tasks.add_parser('coqa', help='answer questions on stories (CoQA)')
  coqa.add_argument(
    'data', metavar='FILE', help='coqa-dev-v1.0.json, the file of CoQA'
  )
  summarize = tasks.add_parser(
    'summarize', help='summarize news (CNN and Daily Mail)'
  )
  stories = (
    'folder of .story files, or a JSONL file with article and highlights on'
    ' each line'
  )
  summarize.add_argument('data', metavar='FOLDER', help=stories)
  summarize.add_argument(
    '--urls',
    metavar='FILE',
    help='list of the URLs of the stories to read, such as all_test.txt; by'
    ' default all stories are read',
  )
  translate = tasks.add_parser('translate', help='translate sentences')
  translate.add_argument(
    'data', metavar='SOURCE', help='file with a sentence on each line'
  )
  translate.add_argument(
    'target', metavar='TARGET', help='file with the translation of each line'
  )
  for task in (coqa, summarize, translate):
    _, _, number = command.adders(task)
    number(
      '--limit',
      help='largest number of stories, articles or sentences; by default all',
    )
    number(
      '--batch',
      default=8,
      help='prompts that are continued at a time; by default %(default)s',
    )
    command.add_json(task)
  command.main(parser.parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  task = arguments.task
  needed = zero_shot.PACKAGES.get(task)
  if needed and importlib.util.find_spec(needed) is None:
    raise ValueError(
      f'{task} is scored by {needed}, which cannot be found here: pip install'
      " 'sesame-lm[zero_shot]'"
    )
  if task == 'coqa':
    given, score = zero_shot.read_coqa(arguments.data), zero_shot.run_coqa
  elif task == 'summarize':
    given = zero_shot.read_stories(arguments.data, arguments.urls)
    score = zero_shot.run_summaries
  else:
    given = zero_shot.read_parallel(arguments.data, arguments.target)
    score = zero_shot.run_translation
  given = given[: arguments.limit]
  if not given:
    raise ValueError(f'{arguments.data}: holds nothing to do')
  new_tokens = 32 if task == 'coqa' else 100
  options = {'max_new_tokens': new_tokens, 'batch': arguments.batch}
  from models.decoding import Sampling
  from train.language import completions
  from train.vectors.trained_model import TrainedModel

  found = TrainedModel(arguments.weights, arguments.tokenizer, use='generate')
  if task == 'summarize':
    room = found.model.max_length + 1 - new_tokens
    given = zero_shot.shorten_articles(found.tokenizer, given, room)
    options['sampling'] = Sampling(top_k=2)  # Radford et al. 2019, section 3.6
  else:
    options['stop'] = ('\n',)

  def complete(prompts: Sequence[str]) -> list[str]:
    """Continues prompts; long ones lose their start, far from the question."""
    written = completions.complete(found, prompts, overflow='slide', **options)
    return [completion.text for completion in written]

  title = f'{task}: {arguments.data}'
  console.print_figures(score(given, complete), title, as_json=arguments.json)


if __name__ == '__main__':
  main()
