"""Probes of layers: python -m train.probe WEIGHTS --data DIR --out OUT.

Shows which layers of an ELMo, BERT, GPT or GPT-2 hold parts of speech, syntax,
roles and so on, by edge probing (Tenney et al. 2019): small classifiers of
spans of words (probes) are trained on the frozen layers. There is a probe for
each layer alone, and for each k one on a learned mix of layers 0 to k; all are
trained together. DIR holds the folders of the labelled sets. OUT gets a
TASK.json for each task, and probes.json, probes.tsv, probes.md and
layer_weights.png for all: F1 by layer, expected layer and centre of gravity.
Tasks that are finished in OUT are not trained again.
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
The labelled set of each task:

  pos, constituents, srl   PropBank's English Web Treebank (ewt_propbank)
  dependencies             UD_English-EWT
  entities, coref          OntoGUM
  relations                SemEval 2010 task 8

A task of your own is a folder DIR/NAME with train.jsonl, dev.jsonl and
test.jsonl. A line is {"text": "Ann ate", "targets": [{"span1": [1, 2],
"span2": [0, 1], "label": "ARG0"}]}; spans count words. If the only labels are 0
and 1, the F1 is of label 1."""


def _parser() -> argparse.ArgumentParser:
  parser = command.parser('probe', __doc__, command.ALL_MODELS, epilog=EPILOG)
  add, switch, number = command.adders(parser)
  add(
    '--tasks',
    default=TASKS,
    help='names of tasks, separated by commas; by default'
    f' {TASKS.replace(",", ", ")}',
  )
  add(
    '--data', metavar='DIR', required=True, help='folder of the labelled sets'
  )
  add('--out', metavar='OUT', required=True, help='folder for the results')
  add(
    '--layers',
    default='both',
    help='which layers get a probe: cumulative (mixes of layers 0 to k, for'
    ' each k), single (each layer alone), both (the default), one mix, such as'
    ' 0-6, or one layer, such as 6',
  )
  number('--seeds', default=3, help='number of random seeds of each probe')
  switch(
    '--control',
    help='for pos: also train the control task, which gives random labels to'
    ' word types (Hewitt and Liang 2019), and report the selectivity: test F1'
    ' minus the F1 of the control task',
  )
  number(
    '--limit',
    help='largest number of training sentences of a task; by default all',
  )
  add(
    '--cache',
    metavar='FOLDER',
    help='folder that keeps the vectors of texts; by default'
    ' ~/.cache/sesame/word_vectors',
  )
  switch('--overwrite', help='replace the results in OUT')
  switch('--json', help='print JSON on standard output, not the tables')
  group = parser.add_argument_group(
    'training',
    'The defaults suit a CPU; --published takes the settings of the published'
    ' code (jiant).',
  )
  group.add_argument(
    '--published',
    action='store_true',
    help='take the published settings below: at most 250 validations, one after'
    ' every 1000 steps; for relations at most 100, one after every 100 steps',
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
  'steps': 'largest number of training steps of a probe',
  'batch_size': 'sentences in a batch',
  'learning_rate': 'learning rate of Adam',
  'mix_factor': 'learning rate of the weights of layers in a mix, as a multiple'
  ' of --learning_rate',
  'clip_norm': "largest norm of a probe's gradient",
  'validate_every': 'steps from one validation to the next',
  'threshold': 'gain in dev F1 (0 to 1) that counts as progress',
  'halve_after': 'validations without progress after which the learning rate is'
  ' halved',
  'stop_after': 'validations without progress after which a probe is finished',
  'smallest_rate': 'learning rate at which a probe is finished',
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
  told = f'results are in {arguments.out}'
  console.conclude(told, as_json=arguments.json)


if __name__ == '__main__':
  main()
