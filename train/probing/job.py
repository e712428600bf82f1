"""Probes tasks one after the other; finished ones are not trained again."""

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from etils import epath

from data.tasks.probes import targets, tasks
from data.tasks.probes.targets import Probe, Sentence
from models.probes.edge_probe import EdgeProbe
from train.host import console, files
from train.host.files import Json
from train.probing import (
  batches,
  choices,
  examples,
  fit,
  outputs,
  plan,
  summaries,
)
from train.probing.examples import Features, ProbeSplit
from train.probing.plan import Settings
from train.vectors.trained_model import TrainedModel
from train.vectors.vector_cache import VectorCache

# The sentences of each split.
Sentences = dict[str, list[Sentence]]


def run(
  arguments: argparse.Namespace, found: Sequence[Probe]
) -> tuple[str, str]:
  """Probes the tasks as train.probe's arguments say.

  Returns the tables in Markdown and all results in JSON. All input is read
  before the first vector is computed.
  """
  out = epath.Path(arguments.out).expanduser()
  cache = VectorCache(arguments.weights, arguments.tokenizer, unit='piece')
  model = cache.model
  weights = {'weights': cache.digest[:16], 'num_layers': model.num_layers}
  expected = {
    probe.name: weights | choices.settings_of(probe, arguments)
    for probe in found
  }
  plan.members(arguments.layers, model.num_layers, arguments.seeds)  # checks
  todo = choices.check_out(out, expected, overwrite=arguments.overwrite)
  sentences = {
    probe.name: read(probe, arguments.data, arguments.limit)
    for probe in (found if todo else ())
  }
  corpora = {
    probe.corpus: _corpus(probe, sentences, arguments)
    for probe in found
    if probe.name in todo
  }
  vectors: dict[str, Features] = {}
  out.mkdir(parents=True, exist_ok=True)
  for probe in found:
    if probe.name not in todo:
      console.say(f'{probe.name}: read from {outputs.path_of(out, probe.name)}')
      continue
    if probe.corpus not in vectors:
      vectors[probe.corpus] = examples.features_of(
        cache, corpora[probe.corpus], arguments.cache
      )
    record = probe_task(
      model,
      probe,
      sentences.pop(probe.name),
      vectors[probe.corpus],
      expected[probe.name],
      recipe=choices.recipe_of(probe.name, arguments),
      with_control=arguments.control,
    )
    files.write_atomically(
      outputs.path_of(out, probe.name), files.as_json(record) + '\n'
    )
  names = [*expected, *choices.others(out, expected)]
  records = [outputs.read(outputs.path_of(out, name)) for name in names]
  title = f'{model.folder.name} ({model.name})'
  return outputs.write(out, title, records)


def read(probe: Probe, source: str, limit: int | None) -> Sentences:
  """Returns a task's sentences; `limit` keeps as many of the training split."""
  return {
    split: tasks.load(probe, source, split, limit if split == 'train' else None)
    for split in tasks.SPLITS
  }


def _corpus(
  probe: Probe,
  sentences: Mapping[str, Sentences],
  arguments: argparse.Namespace,
) -> list[Sentence]:
  """Returns the sentences of a task's corpus.

  All tasks of the corpus contribute their sentences, trained here or not, so
  that another command finds the same vectors.
  """
  beside = tasks.beside(probe, arguments.data)
  found = [
    sentences.get(other.name) or read(other, arguments.data, arguments.limit)
    for other in beside
  ]
  # Other sentences with --limit alone.
  found += [
    sentences[name]
    for name in sentences
    if name in tasks.PROBES and tasks.PROBES[name].corpus == probe.corpus
  ]
  return [each for splits in found for part in splits.values() for each in part]


def probe_task(
  model: TrainedModel,
  probe: Probe,
  sentences: Sentences,
  features: Features,
  settings: Mapping[str, Json],
  *,
  recipe: Settings,
  with_control: bool = False,
) -> dict[str, Json]:
  """Trains the probes of a task; returns its record for TASK.json.

  `settings` are those of `choices.settings_of`. With `with_control`, a probe
  that has a control task is trained on it as well, and the record has the
  selectivity.
  """
  num_layers = model.num_layers
  record = _train(model, probe, sentences, features, settings, recipe)
  control = None
  if with_control and probe.has_control:
    drawn = tasks.control(
      [sentences[split] for split in tasks.SPLITS], seen_by(model)
    )
    control = _train(
      model,
      tasks.as_control(probe),
      dict(zip(tasks.SPLITS, drawn, strict=True)),
      features,
      settings,
      recipe,
    )
  return record | {
    'control': control,
    'selectivity': control
    and summaries.selectivity(record['probes'], control['probes'], num_layers),
  }


def seen_by(model: TrainedModel) -> Callable[[str], str]:
  """Returns a function from a word to the text that its pieces spell.

  To an uncased BERT two words that differ in case are one.
  """
  if model.reads_words:
    return lambda word: word
  tokenizer = model.tokenizer
  return lambda word: tokenizer.decode(tokenizer.encode_words([[word]])[0][0])


def _train(
  model: TrainedModel,
  probe: Probe,
  sentences: Sentences,
  features: Features,
  settings: Mapping[str, Json],
  recipe: Settings,
) -> dict[str, Json]:
  classes = targets.labels_of(sentences['train'])
  if not classes:
    raise ValueError(f'{probe.name}: found no label in the training sentences')
  splits: dict[str, ProbeSplit] = {}
  for split in tasks.SPLITS:
    splits[split] = examples.project(
      sentences[split], features, classes, probe.is_scored
    )
    examples.tell(probe.name, split, splits[split])
    if not splits[split].examples:
      raise ValueError(
        f'{probe.name}, {split}: found no target whose words have pieces'
      )
  members = plan.members(
    settings['layers'], model.num_layers, settings['seeds']
  )
  console.say(
    f'{probe.name}: {len(members)} probes of {len(classes)} classes,'
    f' {len(splits["train"].examples):,} training sentences'
  )
  probes = fit.Probes(
    EdgeProbe(model.num_layers, len(classes), probe.num_spans),
    model.dim,
    members,
    recipe,
    np.array([probe.is_scored(label) for label in classes]),
  )
  packer = batches.Packer(
    features.layers, splits['train'].examples, recipe.batch_size
  )
  results, seconds = fit.train(probe.name, probes, packer, splits)
  runs = [
    result.member._asdict()
    | {key: getattr(result, key) for key in result._fields if key != 'member'}
    for result in results
  ]
  counts = {split: len(splits[split].examples) for split in tasks.SPLITS}
  unseen = {
    split: sum(splits[split].unseen.values()) for split in ('dev', 'test')
  }
  return {
    'task': probe.name,
    'title': probe.title,
    'settings': dict(settings),
    'data': counts | {'classes': len(classes), 'unseen_labels': unseen},
    'figures': summaries.summarise(runs, model.num_layers),
    'probes': runs,
    'seconds': seconds,
  }
