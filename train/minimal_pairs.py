"""How often a model prefers the good sentence of a pair (BLiMP, Zorro).

python -m train.minimal_pairs WEIGHTS PAIRS [--beside WEIGHTS ...]

A minimal pair is a good sentence and a bad one that differ in little. A model
is right if it gives the good sentence the higher score; a tie is wrong.

PAIRS is a folder of BLiMP (NAME.jsonl) or of Zorro (NAME.txt: each bad sentence
is followed by its good one), or a file of your own: JSONL with good, bad and
perhaps group on each line, or .tsv with these titles. WEIGHTS is a model that
predicts tokens (GPT, GPT-2, LSTM, NNLM, ELMo, BERT), a file of n-grams (.arpa),
or a token store, whose 5-grams are counted. If the folder has BLiMP's
models_summary.jsonl, published systems stand beside the models.
"""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from train.host import files
from train.language import learning_curve, minimal_pairs
from train.language.learning_curve import Point
from train.run import command

SCORINGS = ('sum', 'mean', 'holistic')


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
    help='score of a sentence: the sum over its pieces (the default), their'
    ' mean, or, only for a BERT, minus the mean cross-entropy of the unmasked'
    ' sentence (holistic)',
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
  if len(set(names)) < len(names):
    raise ValueError('--beside: the same WEIGHTS twice')
  pairs = minimal_pairs.limited(
    minimal_pairs.read(arguments.pairs), arguments.limit
  )
  others = minimal_pairs.published(arguments.pairs)
  from train.host import device

  kept = _kept(names) if arguments.curve else {}
  scores, ways = _score(names, pairs, arguments)
  results = {
    name: {'scoring': ways[name], **minimal_pairs.figures(pairs, *score)}
    for name, score in scores.items()
  }
  first, *rest = (good > bad for good, bad in scores.values())
  figures = {
    'command': f'python -m train.minimal_pairs {shlex.join(sys.argv[1:])}',
    'revision': device.revision(),
    'models': results,
    'published': others,
    'mcnemar': {
      name: minimal_pairs.mcnemar(first, other)
      for name, other in zip(names[1:], rest, strict=True)
    },
  }
  if arguments.curve:
    curves = _curves(kept, results, pairs, arguments)
    figures['curves'] = curves
    means = {
      name: sum(shares.values()) / len(shares)
      for name, shares in others.items()
    }
    learning_curve.draw(arguments.curve, curves, means)
  if arguments.scores:
    minimal_pairs.write_scores(arguments.scores, pairs, scores)
  if arguments.figure:
    minimal_pairs.draw(arguments.figure, results, others, pairs)
  if arguments.output:
    files.write_atomically(arguments.output, files.as_json(figures) + '\n')
  if arguments.json:
    print(files.as_json(figures))
  else:
    _print(figures, pairs)


def _kept(names: Sequence[str]) -> dict[str, list[Point]]:
  """Returns the points of each model that has some; there are such."""
  kept = {name: learning_curve.points(name) for name in names}
  if not any(kept.values()):
    raise ValueError(
      f'--curve: no checkpoint of a pre-training in {", ".join(names)}:'
      ' expected a workdir, or a token store'
    )
  return {name: found for name, found in kept.items() if found}


def _curves(
  kept: Mapping[str, Sequence[Point]],
  results: Mapping[str, minimal_pairs.Figures],
  pairs: Sequence[minimal_pairs.MinimalPair],
  arguments: argparse.Namespace,
) -> dict[str, list[minimal_pairs.Figures]]:
  """Returns each model's shares of right pairs after so many words.

  The last point is the model itself, whose `results` are there.
  """
  curves = {}
  for model, found in kept.items():
    earlier = [each.name for each in found[:-1]]
    scores, _ = _score(earlier, pairs, arguments)
    figures = [minimal_pairs.figures(pairs, *scores[name]) for name in earlier]
    curves[model] = [
      {'name': each.name, 'words': each.words}
      | {key: of[key] for key in ('mean', 'interval', 'share', 'groups')}
      for each, of in zip(found, [*figures, results[model]], strict=True)
    ]
  return curves


def _score(
  names: Sequence[str],
  pairs: Sequence[minimal_pairs.MinimalPair],
  arguments: argparse.Namespace,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
  """Returns each model's scores [2, pairs], good ones first, and the way."""
  from train.language import sentence_scorers

  sentences = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
  scoring = 'holistic' if arguments.scoring == 'holistic' else 'sum'
  scorers = [  # all are checked before one is scored
    sentence_scorers.open_scorer(
      name, sentences, scoring, None if place else arguments.tokenizer
    )
    for place, name in enumerate(names)
  ]
  scores, ways = {}, {}
  for name, scorer in zip(names, scorers, strict=True):
    sums, sizes, ways[name] = scorer.score(
      sentences, scoring=scoring, within_word=arguments.within_word
    )
    if arguments.scoring == 'mean':
      sums, ways[name] = sums / sizes, f'{ways[name]}, divided by their number'
    scores[name] = np.stack(np.split(sums, 2))
  return scores, ways


def _print(
  figures: Mapping[str, files.Json], pairs: Sequence[minimal_pairs.MinimalPair]
) -> None:
  results, others = figures['models'], figures['published']
  print(minimal_pairs.table(results, others, pairs))
  for name, found in results.items():
    low, high = found['interval']
    print(
      f'{name}: {100 * found["mean"]:.1f} % ({100 * low:.1f} to'
      f' {100 * high:.1f}) over {len(found["groups"])} groups,'
      f' {100 * found["share"]:.1f} % of {found["pairs"]:,} pairs,'
      f' {found["ties"]:,} ties. Scored: {found["scoring"]}.'
    )
  for name, test in figures['mcnemar'].items():
    print(
      f'Only {next(iter(results))} has {test["only_first"]:,} pairs right, only'
      f' {name} {test["only_second"]:,}: p = {test["p"]:.2g} (McNemar, exact).'
    )
  for name, points in figures.get('curves', {}).items():
    for point in points:
      low, high = point['interval']
      print(
        f'{name} after {point["words"]:,} words: {100 * point["mean"]:.1f} %'
        f' ({100 * low:.1f} to {100 * high:.1f})'
      )
  if others:
    print('Published: the rows of models_summary.jsonl, of whole sentences.')


if __name__ == '__main__':
  main()
