"""Probes of layers: python -m train.probe WEIGHTS --data DIR --out OUT.

Edge probing (Tenney et al. 2019): small classifiers of spans of words, over
the frozen layers of an ELMo, BERT, GPT or GPT-2: over each layer alone, and
over a learned mix of layers 0 to k for each k, all trained together. DIR holds
the folders of the sets. OUT gets TASK.json of each task, probes.json,
probes.tsv, probes.md and layer_weights.png: F1 by layer, expected layer and
centre of gravity. Finished tasks in OUT are not trained again.
"""

# ruff: noqa: E402
from train.host import huge_pages

if __name__ == '__main__':
  huge_pages.restart_with()  # as train.main does: a fifth less time

import argparse
import dataclasses

from train.host import console, files
from train.probing import plan
from train.run import command

TASKS = 'pos,constituents,dependencies,entities,srl,coref,relations'
EPILOG = """
Sets: pos, constituents, srl: PropBank's English Web Treebank (ewt_propbank);
dependencies: UD_English-EWT; entities, coref: OntoGUM; relations: SemEval 2010
task 8. A task of your own is a folder DIR/NAME of train.jsonl, dev.jsonl and
test.jsonl: {"text": "Ann ate", "targets": [{"span1": [1, 2], "span2": [0, 1],
"label": "ARG0"}]}. If its labels are 0 and 1 alone, the F1 counts 1 alone."""


def _parser() -> argparse.ArgumentParser:
  parser = command.parser('probe', __doc__, command.ALL_MODELS, epilog=EPILOG)
  add, switch, number = command.adders(parser)
  add('--tasks', default=TASKS, help='names with commas between them')
  add('--data', metavar='DIR', required=True, help='the folder of the sets')
  add('--out', metavar='OUT', required=True, help='the folder to write')
  add(
    '--layers',
    default='both',
    help='cumulative: mixes of layers 0 to k for each k; single; both (the'
    ' default); one mix, as 0-6; or one layer, as 6',
  )
  number('--seeds', default=3, help='of each probe')
  switch(
    '--control',
    help='of pos: train the control task too, random labels of word types'
    ' (Hewitt and Liang 2019), and tell the selectivity',
  )
  number('--limit', help='training sentences of a task')
  add(
    '--cache', metavar='FOLDER', help='of the vectors; by default of the user'
  )
  switch('--overwrite', help='replace results in OUT')
  switch('--json', help='print JSON on standard output, not the tables')
  group = parser.add_argument_group(
    'training', 'by default for a CPU; --published takes those of the source'
  )
  group.add_argument(
    '--published',
    action='store_true',
    help='rate 1e-4, 250 validations of 1,000 steps; relations: 100 of 100',
  )
  for field in dataclasses.fields(plan.Settings):
    group.add_argument(
      f'--{field.name}',
      type=command.positive if field.type is int else float,
      help=f'{HELP[field.name]}; by default {field.default}, published'
      f' {getattr(plan.PUBLISHED, field.name)}',
    )
  return parser


HELP = {
  'steps': 'of each probe at most',
  'batch_size': 'sentences',
  'learning_rate': 'of Adam',
  'mix_factor': 'rate of the weights of layers over the learning rate',
  'clip_norm': "largest norm of a probe's gradient",
  'validate_every': 'steps',
  'threshold': 'gain in dev F1, 0 to 1, that is progress',
  'halve_after': 'validations without progress that halve the rate',
  'stop_after': 'validations without progress that end a probe',
  'smallest_rate': 'that ends a probe',
}


def main() -> None:
  """Entry point."""
  command.main(_parser().parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before the model is loaded.
  from data.tasks.probes import tasks
  from train.probing import choices

  plan.check_layers(arguments.layers)
  names = [name.strip() for name in arguments.tasks.split(',')]
  found = tasks.find(names, arguments.data)
  files.check_folder('--out', arguments.out)
  if arguments.control and not any(probe.has_control for probe in found):
    raise ValueError(
      f'--control: found --tasks={arguments.tasks}, none of which has a control'
      ' task; expected pos among them'
    )
  settings = {
    probe.name: choices.settings_of(probe, arguments) for probe in found
  }
  choices.check_out(arguments.out, settings, overwrite=arguments.overwrite)
  from train.probing import job

  tables, figures = job.run(arguments, found)
  print(figures if arguments.json else tables, end='')
  console.say(f'results are in {arguments.out}')


if __name__ == '__main__':
  main()
