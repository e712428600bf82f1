"""What a model knew after half of its text, a quarter, and so on."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from etils import epath

from data.ngrams import texts
from data.store import corpus, folders
from train.host import files, pictures
from train.run import checkpoint, training_phases, workdirs

_FEWEST_WORDS = 100_000  # that the n-grams of a curve are counted in


class Point(NamedTuple):
  """A model that has read a part of its text.

  Attributes:
    name: WORKDIR@STEP, a kept checkpoint of a pre-training, or STORE@1/N, the
      n-grams of the first Nth of each document.
    words: words read; a word that is read twice counts twice.
  """

  name: str
  words: int


def points(weights: str) -> list[Point]:
  """Returns what WEIGHTS was when it had read less, and at last itself.

  Each has read at most half of what the next one has. None of what is neither
  a workdir of a pre-training nor a token store. Raises ValueError for a workdir
  that does not tell how many tokens a word has.
  """
  if folders.is_store(weights):
    return _shares(weights)
  facts = epath.Path(weights) / workdirs.STORE_FILE
  return _checkpoints(weights, facts) if facts.exists() else []


def _shares(folder: str) -> list[Point]:
  store = corpus.open_store(folder)
  audit = store.meta['audit']
  tokens = sum(map(len, texts.documents(store, held_out=False)))
  words = round(tokens * audit['words'] / audit['tokens'])
  found = [Point(folder, words)]
  part = 2
  while words // part >= _FEWEST_WORDS:
    found.append(Point(f'{folder}@1/{part}', words // part))
    part *= 2
  return found[::-1]


def _checkpoints(workdir: str, facts: epath.Path) -> list[Point]:
  """Returns the newest checkpoint, and kept ones of half its steps and less."""
  found = files.read_json(facts)
  if 'words' not in found:
    raise ValueError(
      f'{facts}: has no count of words; it is of an older revision, and the'
      " command that trained the run writes it again, even at the run's end"
    )
  config = workdirs.read_config(workdir)
  phases = [
    training_phases.Phase(*p) for p in training_phases.check_phases(config)
  ]
  chosen: list[int] = []
  for step in reversed(
    checkpoint.complete_steps(checkpoint.checkpoint_folder(workdir))
  ):
    if step and (not chosen or 2 * step <= chosen[-1]):
      chosen.append(step)
  return [
    Point(
      f'{workdir}@{step}',
      round(_tokens(phases, step) * found['words'] / found['tokens']),
    )
    for step in reversed(chosen)
  ]


def _tokens(phases: Sequence[training_phases.Phase], step: int) -> int:
  """Returns the tokens of the first batches; the last phase may be longer."""
  last = phases[-1]._replace(steps=step)
  return sum(
    phase.steps * phase.length * phase.global_batch
    for phase in training_phases.cut_phases([*phases[:-1], last], step)
  )


def draw(path: str, of_sets: Mapping[str, Mapping[str, files.Json]]) -> None:
  """Draws the mean share of right pairs over the words read, as PNG.

  `of_sets` are PAIRS -> its `curves`, model -> points with `words` and `mean`,
  and its `published`, system -> group -> share, grey lines; a panel each.
  """
  figure = pictures.figure(7.0 + 4.5 * (len(of_sets) - 1), 4.2)
  panels = figure.subplots(1, len(of_sets), squeeze=False, sharey=True)[0]
  for axes, (name, of) in zip(panels, of_sets.items(), strict=True):
    for model, points in of['curves'].items():
      axes.plot(
        [point['words'] for point in points],
        [100 * point['mean'] for point in points],
        marker='o',
        markersize=4,
        label=pictures.shown(model),
      )
    axes.set_xscale('log')
    means = {
      system: sum(shares.values()) / len(shares)
      for system, shares in of['published'].items()
    }
    for mean in means.values():
      axes.axhline(100 * mean, color='#999999', linewidth=0.8)
    for label, mean in labels(means).items():
      axes.annotate(
        pictures.shown(label),
        (1, 100 * mean),
        xycoords=('axes fraction', 'data'),
        xytext=(-3, 2),
        textcoords='offset points',
        ha='right',
        fontsize='x-small',
        color='#666666',
      )
    axes.axhline(50, color='black', linewidth=0.8, linestyle=':')
    axes.set_xlabel('words read; dotted: chance')
    axes.grid(alpha=0.3)
    if len(of_sets) > 1:
      axes.set_title(epath.Path(name).name, fontsize='medium')
  panels[0].set_ylabel('right pairs, %, mean over groups')
  panels[0].legend(loc='best', fontsize='small')
  pictures.save(figure, path, dpi=150)


def labels(published: Mapping[str, float]) -> dict[str, float]:
  """Returns text -> its height, above the line of the best that it names.

  Systems whose lines are less than a text's height apart share one, the best
  first.
  """
  groups: list[list[str]] = []
  for name in sorted(published, key=published.__getitem__, reverse=True):
    if groups and published[groups[-1][0]] - published[name] < 0.015:
      groups[-1].append(name)
    else:
      groups.append([name])
  return {'; '.join(names): published[names[0]] for names in groups}
