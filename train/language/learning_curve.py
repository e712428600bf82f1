"""What a model knew after half of its text, a quarter, and so on."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from etils import epath

from train.host import files, pictures
from train.run import checkpoint, training_phases, workdirs


class Checkpoint(NamedTuple):
  """A kept checkpoint of a pre-training.

  Attributes:
    name: WORKDIR@STEP.
    step: training steps before it.
    words: words read before it, in batches; a word counts each time.
  """

  name: str
  step: int
  words: int


def checkpoints(workdir: str) -> list[Checkpoint]:
  """Returns the newest checkpoint, and kept ones of half its steps and less.

  Each has at most half the steps of the next; the first comes first. None of
  what is no workdir of a pre-training. Raises ValueError for a workdir that
  does not tell how many tokens a word has.
  """
  facts = epath.Path(workdir) / workdirs.STORE_FILE
  if not facts.exists():
    return []
  found = files.read_json(facts)
  if 'words' not in found:
    raise ValueError(
      f'{facts}: has no count of words; it is of an older revision, and the'
      " command that trained the run writes it again, even at the run's end"
    )
  config = workdirs.read_config(workdir)
  phases = [training_phases.Phase(*p) for p in config.train.phases]
  chosen: list[int] = []
  for step in reversed(
    checkpoint.complete_steps(checkpoint.checkpoint_folder(workdir))
  ):
    if step and (not chosen or 2 * step <= chosen[-1]):
      chosen.append(step)
  return [
    Checkpoint(
      f'{workdir}@{step}',
      step,
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


def draw(
  path: str,
  curves: Mapping[str, Sequence[Mapping[str, float]]],
  published: Mapping[str, float],
) -> None:
  """Draws the mean share of right pairs over the words read, as PNG.

  Args:
    path: of the PNG.
    curves: model -> points with `words` and `mean`.
    published: system -> its mean, a grey line.
  """
  figure = pictures.figure(7.0, 4.2)
  axes = figure.subplots()
  for name, points in curves.items():
    axes.plot(
      [point['words'] for point in points],
      [100 * point['mean'] for point in points],
      marker='o',
      markersize=4,
      label=pictures.shown(name),
    )
  axes.set_xscale('log')
  for mean in published.values():
    axes.axhline(100 * mean, color='#999999', linewidth=0.8)
  for label, mean in labels(published).items():
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
  axes.set_ylabel('right pairs, %, mean over groups')
  axes.grid(alpha=0.3)
  axes.legend(loc='best', fontsize='small')
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
