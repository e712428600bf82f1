"""The probing tasks by name, their files, and a control task."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence

import numpy as np
from etils import epath

from data.tasks import examples, files
from data.tasks.probes import mentions, own, relations, treebanks
from data.tasks.probes.targets import Probe, Sentence, Target

# In the order of Tenney et al. 2019, table 1.
PROBES: dict[str, Probe] = {
  probe.name: probe
  for module in (treebanks, mentions, relations)
  for probe in module.PROBES
}
SPLITS = ('train', 'dev', 'test')
CONTROL_SEED = 0
_NAME = re.compile(r'\w[\w .+-]*')  # no path
# Names of other results: the file probes.json of all tasks, a control task.
RESERVED = ('probes', 'pos_control')


def find(names: Sequence[str], source: str) -> list[Probe]:
  """Returns the tasks of given names, each checked to have its files.

  A name beside `PROBES` is a folder of `source`, see `own`. Raises ValueError
  for an unknown or repeated name, and for paths, before anything is read;
  FileNotFoundError for missing files.
  """
  for name in names:
    if not _NAME.fullmatch(name) or name in RESERVED:
      raise ValueError(
        f'--tasks: found the name {name!r}, expected some of'
        f' {", ".join(PROBES)}, or the name of a folder of {source}: no path,'
        f' and none of {", ".join(RESERVED)}'
      )
    if names.count(name) > 1:
      raise ValueError(f'--tasks: found {name!r} twice, expected each once')
  if not epath.Path(source).expanduser().is_dir():
    raise FileNotFoundError(
      f'--data {source}: found no such folder, expected the folder of the sets'
    )
  found = []
  for name in names:
    probe = PROBES.get(name) or own.find(name, source)
    if probe is None:
      near = difflib.get_close_matches(name.lower(), PROBES, n=1)
      hint = f' Did you mean {near[0]!r}?' if near else ''
      raise ValueError(
        f'--tasks: found no probing task {name!r}, expected some of'
        f' {", ".join(PROBES)}, or the name of a folder of {source} with'
        f' train.jsonl, dev.jsonl and test.jsonl.{hint}'
      )
    for split in SPLITS:
      file_of(probe, source, split)
    found.append(probe)
  return found


def file_of(probe: Probe, source: str, split: str) -> epath.Path:
  """Returns the file of a split; raises FileNotFoundError without it."""
  file = files.find(source, probe.folders, probe.files[split])
  if file is None:
    root = epath.Path(source).expanduser()
    folders = ' or '.join(str(root / name) for name in (*probe.folders, ''))
    known = f' ({probe.url})' if probe.url else ''
    raise FileNotFoundError(
      f'task {probe.name}: found no {" or ".join(probe.files[split])} in'
      f' {folders}, expected the files of the set{known}.'
      f' {files.contents(root)}'
    )
  return file


def load(
  probe: Probe, source: str, split: str, limit: int | None = None
) -> list[Sentence]:
  """Returns the sentences of a split, those without targets included.

  `limit` keeps as many, evenly spaced. Raises ValueError at a wrong line.
  """
  found = probe.read(file_of(probe, source, split), split)
  return examples.evenly(found, limit)


def beside(probe: Probe, source: str) -> list[Probe]:
  """Returns the tasks in a folder whose sentences share a task's corpus.

  Their `rows` yield all sentences of their files, and no two read one file.
  """
  candidates = [
    other
    for other in (*PROBES.values(), probe)
    if other.corpus == probe.corpus and (other.is_whole or other is probe)
  ]
  found: dict[epath.Path, Probe] = {}
  for other in sorted(candidates, key=lambda other: not other.is_whole):
    paths = [
      files.find(source, other.folders, other.files[split]) for split in SPLITS
    ]
    if all(paths):
      found.setdefault(paths[0], other)
  return list(found.values())


def control(
  splits: Sequence[Sequence[Sentence]],
  seen: Callable[[str], str] = lambda word: word,
) -> list[list[Sentence]]:
  """Returns sentences whose words have random labels, one a word type.

  The control task of Hewitt and Liang 2019: each word type, in all splits, is
  given a label at random, drawn as often as the labels of the first split, the
  training, occur. A probe can learn it by heart alone. The targets are of one
  word each. `seen` returns a word as the encoder reads it, in lower case if so:
  words that the encoder cannot tell apart are of one type.
  """
  labels = [
    label
    for sentence in splits[0]
    for target in sentence.targets
    for label in target.labels
  ]
  names, counts = np.unique(labels, return_counts=True)
  random = np.random.default_rng(CONTROL_SEED)
  type_of: dict[str, str] = {}
  for sentences in splits:
    for sentence in sentences:
      for word in sentence.words:
        if word not in type_of:
          type_of[word] = seen(word)
  types = dict.fromkeys(type_of.values())
  drawn = random.choice(names, len(types), p=counts / counts.sum())
  of_type = dict(zip(types, map(str, drawn), strict=True))

  def relabelled(sentence: Sentence) -> Sentence:
    found = tuple(
      Target(spans, (of_type[type_of[sentence.words[spans[0][0]]]],))
      for spans, _ in sentence.targets
    )
    return Sentence(sentence.words, found)

  return [[relabelled(each) for each in sentences] for sentences in splits]


def as_control(probe: Probe) -> Probe:
  """Returns the declaration of a task's control task."""
  return dataclasses.replace(
    probe, name=f'{probe.name}_control', title=f'{probe.title}, control'
  )
