"""How often a model prefers the good sentence of a pair (BLiMP, Zorro).

python -m train.minimal_pairs WEIGHTS PAIRS [PAIRS ...] [--beside WEIGHTS ...]

A minimal pair is a good sentence and a bad one that differ in little. A model
is right if it gives the good sentence the higher score; a tie is wrong.

PAIRS is a folder of BLiMP (NAME.jsonl) or of Zorro (NAME.txt: each bad sentence
is followed by its good one), or a file of your own: JSONL with good, bad and
perhaps group on each line, or .tsv with these titles. WEIGHTS is a model that
predicts tokens (GPT, GPT-2, LSTM, NNLM, ELMo, BERT), a file of n-grams (.arpa),
or a token store, whose 5-grams are counted. Published systems stand beside the
models if PAIRS has all groups of BLiMP or of Zorro.
"""

import argparse
import collections
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from train.host import console, files
from train.host.files import Json
from train.language import minimal_pairs, published_pairs
from train.language.minimal_pairs import Figures, MinimalPair
from train.run import command

if TYPE_CHECKING:
  from train.language.learning_curve import Point

SCORINGS = ('sum', 'mean', 'forward', 'backward', 'holistic')


def main() -> None:
  """Entry point."""
  parser = command.parser(
    'minimal_pairs',
    __doc__,
    'a language model: a workdir (the folder of a run), a folder of published'
    " weights, or a name on Hugging Face's hub; or n-grams: an .arpa file, or a"
    ' token store',
  )
  add, switch, number = command.adders(parser)
  add(
    'pairs',
    nargs='+',
    metavar='PAIRS',
    help='folder of BLiMP or Zorro, or a file of your own (.jsonl, .tsv)',
  )
  add(
    '--beside',
    nargs='+',
    action='extend',
    default=[],
    metavar='WEIGHTS',
    help='other models for the same table',
  )
  add(
    '--scoring',
    choices=SCORINGS,
    default='sum',
    help='score of a sentence: the sum over its pieces (the default, for GPT-2'
    ' as in lm-evaluation-harness), their mean, for an ELMo the sum by its'
    ' forward or backward language model alone, or for a BERT minus the mean'
    ' cross-entropy of the unmasked sentence (holistic)',
  )
  switch(
    '--within_word',
    help='for a BERT: with each hidden piece, also hide the later pieces of its'
    ' word',
  )
  number('--limit', help='largest number of pairs of a group; by default all')
  add(
    '--figure',
    metavar='FILE.png',
    help='draw the shares of right pairs as bars, for each phenomenon (family'
    ' of groups)',
  )
  add(
    '--curve',
    metavar='FILE.png',
    help='also score earlier checkpoints that a pre-training kept, each with at'
    ' most half the steps of the next, and n-grams of a half, a quarter, and so'
    ' on, of a store, and draw the mean share of right pairs by the number of'
    ' words read',
  )
  add('--scores', metavar='FILE.csv', help='write the score of each sentence')
  add('--output', metavar='FILE.json', help='write the results as JSON')
  command.add_json(parser)
  command.main(parser.parse_args(), _run)


def _run(arguments: argparse.Namespace) -> None:
  # Bad input shows before a model is loaded.
  for path in (
    arguments.figure,
    arguments.curve,
    arguments.scores,
    arguments.output,
  ):
    files.check_writable(path)
  names = [arguments.weights, *arguments.beside]
  for option, given in (('--beside', names), ('PAIRS', arguments.pairs)):
    if len(set(given)) < len(given):
      raise ValueError(f'{option}: the same twice')
  sets = {
    path: minimal_pairs.limited(minimal_pairs.read(path), arguments.limit)
    for path in arguments.pairs
  }
  kept = _kept(names) if arguments.curve else {}
  earlier = [point.name for points in kept.values() for point in points[:-1]]
  scores, ways = _score([*names, *earlier], sets, arguments)
  from train.host import device

  figures = {
    'command': f'python -m train.minimal_pairs {shlex.join(sys.argv[1:])}',
    'revision': device.revision(),
    'scored': {name: ways[name] for name in names},
    'pairs': {
      path: _figures(pairs, scores[path], names, kept, arguments.scoring)
      for path, pairs in sets.items()
    },
  }
  if arguments.curve:
    from train.language import learning_curve

    learning_curve.draw(arguments.curve, figures['pairs'])
  if arguments.scores:
    minimal_pairs.write_scores(arguments.scores, sets, scores, names)
  if arguments.figure:
    minimal_pairs.draw(arguments.figure, figures['pairs'])
  if arguments.output:
    files.write_atomically(arguments.output, files.as_json(figures) + '\n')
  if arguments.json:
    print(files.as_json(figures))
  else:
    _print(figures)


def _kept(names: Sequence[str]) -> dict[str, list['Point']]:
  """Returns the points of each model that has some; there are such."""
  from train.language import learning_curve  # imports JAX

  kept = {name: learning_curve.points(name) for name in names}
  if not any(kept.values()):
    raise ValueError(
      f'--curve: no checkpoint of a pre-training in {", ".join(names)}:'
      ' expected a workdir, or a token store'
    )
  return {name: found for name, found in kept.items() if found}


def _score(
  names: Sequence[str],
  sets: Mapping[str, Sequence[MinimalPair]],
  arguments: argparse.Namespace,
) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str]]:
  """Returns PAIRS -> model -> scores [2, pairs], good ones first, and the ways.

  The first model has the tokenizer of the arguments.
  """
  from train.language import sentence_scorers

  pairs = [pair for of in sets.values() for pair in of]
  scoring = 'sum' if arguments.scoring == 'mean' else arguments.scoring
  scorers = [  # all are checked before one is scored
    sentence_scorers.open_for_pairs(
      name,
      pairs,
      scoring,
      None if place else arguments.tokenizer,
      within_word=arguments.within_word,
    )
    for place, name in enumerate(names)
  ]
  ends = np.cumsum([len(of) for of in sets.values()])[:-1]
  scores, ways = collections.defaultdict(dict), {}
  for number, (name, scorer) in enumerate(zip(names, scorers, strict=True), 1):
    console.say(f'{name}, model {number} of {len(names)}')
    sums, sizes, ways[name] = scorer.score(
      minimal_pairs.sentences(pairs),
      scoring=scoring,
      within_word=arguments.within_word,
    )
    if arguments.scoring == 'mean':
      sums, ways[name] = sums / sizes, f'{ways[name]}, divided by their number'
    both = np.split(np.stack(np.split(sums, 2)), ends, axis=1)
    for path, of in zip(sets, both, strict=True):
      scores[path][name] = of
  return scores, ways


def _figures(
  pairs: Sequence[MinimalPair],
  scores: Mapping[str, np.ndarray],
  names: Sequence[str],
  kept: Mapping[str, Sequence['Point']],
  scoring: str,
) -> dict[str, Json]:
  """Returns the figures of one PAIRS, of models, curves and published systems.

  The last point of a curve is the model itself.
  """
  found = {
    name: minimal_pairs.figures(pairs, *of) for name, of in scores.items()
  }
  right = {name: good > bad for name, (good, bad) in scores.items()}
  first, *others = names
  curves = {
    model: [
      {'name': point.name, 'words': point.words} | _curve_figures(of)
      for point, of in zip(
        points,
        [*(found[each.name] for each in points[:-1]), found[model]],
        strict=True,
      )
    ]
    for model, points in kept.items()
  }
  return {
    'models': {name: found[name] for name in names},
    'published': published_pairs.beside(found[first]['groups'], scoring),
    'mcnemar': {
      name: minimal_pairs.mcnemar(right[first], right[name]) for name in others
    },
    **({'curves': curves} if curves else {}),
  }


def _curve_figures(of: Figures) -> Figures:
  return {key: of[key] for key in ('mean', 'interval', 'share', 'groups')}


def _print(figures: Mapping[str, Json]) -> None:
  for path, of in figures['pairs'].items():
    if len(figures['pairs']) > 1:
      print(f'# {path}\n')
    print(minimal_pairs.table(of['models'], of['published']))
    for name, found in of['models'].items():
      low, high = found['interval']
      print(
        f'{name}: {100 * found["mean"]:.1f} % ({100 * low:.1f} to'
        f' {100 * high:.1f}) over {len(found["groups"])} groups,'
        f' {100 * found["share"]:.1f} % of {found["pairs"]:,} pairs,'
        f' {found["ties"]:,} ties. Scored: {figures["scored"][name]}.'
      )
    first = next(iter(of['models']))
    for name, test in of['mcnemar'].items():
      print(
        f'Only {first} has {test["only_first"]:,} pairs right, only {name}'
        f' {test["only_second"]:,}: p = {test["p"]:.2g} (McNemar, exact).'
      )
    for name, points in of.get('curves', {}).items():
      for point in points:
        low, high = point['interval']
        print(
          f'{name} after {point["words"]:,} words: {100 * point["mean"]:.1f} %'
          f' ({100 * low:.1f} to {100 * high:.1f})'
        )
    if of['published']:
      print(f'Published: {published_pairs.ABOUT}.')


if __name__ == '__main__':
  main()
