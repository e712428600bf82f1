"""The labelled sets that a fine-tuning would download, for a dry run."""

from collections.abc import Iterator

import ml_collections

from data.by_name import ByName
from data.tasks import files, registry
from train.transfer import task_data

_DATA_SETS = ByName(
  {'needs_download': 'data.text.tables.data_sets:needs_download'}
)


def check_downloaded(config: ml_collections.ConfigDict) -> None:
  """Raises ValueError if a run would download a set, which a dry run does not.

  Of a run without `data.source` nothing is known: the next check refuses it.
  """
  for key, name in _missing(config):
    raise ValueError(
      f'{key}: {name} is not downloaded, and a dry run does not do it: a run'
      ' without --dry_run does, before it trains'
    )


def _missing(config: ml_collections.ConfigDict) -> Iterator[tuple[str, str]]:
  """Yields (setting, set) of each set that is not here."""
  source, names = config.data.source or '', []
  if 'distill' in config:
    names.append(('distill.text', config.distill.text or ''))
  if 'own' in (task_data.task_names(config) or (config.task.name,)):
    for split in ('train', 'dev', 'test'):
      name = config.own[split] or ''
      is_whole = not name or not files.is_named(source)
      names.append((f'own.{split}', name if is_whole else f'{source}:{name}'))
  elif source.startswith('tfds'):
    for task in task_data.open_tasks(config):
      for split in ('train', *task_data.eval_splits(config, task)):
        if registry.needs_download(task, source, split):
          yield f'data.source={source}', f'{split} of {task.title}'
  for key, name in names:
    if files.is_named(name) and _DATA_SETS['needs_download'](name):
      yield key, name
