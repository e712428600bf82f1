"""The token stores of a run: opened, built if missing, and described."""

from collections.abc import Mapping, Sequence

import ml_collections
from etils import epath

from data import storage
from data.by_name import ByName
from data.store import build, corpus, folders, texts
from data.text import languages
from train.host import processes
from train.host.files import Json
from train.run import training_phases, workdirs
from train.run.training_phases import Phase

# The beginning of a source -> whether it would be downloaded.
_NEEDS_DOWNLOAD = ByName(
  {
    languages.TASK: 'data.tasks.texts:needs_download',
    languages.TFDS: 'data.text.tfds_text:needs_download',
    languages.HUGGING_FACE: 'data.text.tables.data_sets:needs_download',
  }
)


def check_source(config: ml_collections.ConfigDict) -> None:
  """Checks that there is a token store, or text to build it from."""
  if not _has_store(config):
    data = config.data
    texts.open_source(
      data.source,
      document_break=data.document_break,
      text_field=data.text_field,
    )


def check_downloaded(config: ml_collections.ConfigDict) -> None:
  """Checks that nothing would be downloaded, for a dry run."""
  if _has_store(config):
    return
  source = config.data.source
  for part in languages.parts(source):
    prefix = next(filter(part.startswith, _NEEDS_DOWNLOAD), '')
    if prefix and _NEEDS_DOWNLOAD[prefix](part):
      raise ValueError(
        f'data.source={source}: {part} is not downloaded, and a dry run does'
        ' not do it. Prepare the token store first: python -m data.prepare'
        f' --source {source}'
      )


def _has_store(config: ml_collections.ConfigDict) -> bool:
  return folders.is_store(config.data.folder or workdirs.default_store(config))


def open_store(config: ml_collections.ConfigDict) -> corpus.Store:
  """Opens a config's token store; builds a missing one from small text."""
  data = config.data
  folder = data.folder or workdirs.default_store(config)
  ready = epath.Path(folder, 'store.json')
  with processes.first_alone(f'waiting for process 0 to build {folder}'):
    if not (processes.is_first() or ready.exists()):
      raise ValueError(
        f'{ready}: this process does not see the token store of process 0:'
        ' name one by data.folder, on storage that all hosts share'
      )
    if data.folder is None or not ready.exists():
      return build.ensure_store(
        data.source,
        data.tokenizer,
        folder,
        document_break=data.document_break,
        text_field=data.text_field,
        held_out=data.held_out,
        language_exponent=data.language_exponent,
        unit_source=data.get('units', 'wordpiece'),
        cache=data.cache,
      )
    if not (storage.is_remote(data.folder) or data.cache):
      return corpus.open_store(data.folder)  # process 0 checks it for all
  # All hosts copy a store at the same time.
  return corpus.open_store(data.folder, cache=data.cache)


def _open_built(folder: str, cache: str | None) -> corpus.Store:
  """Opens a store; process 0 checks a local one for all."""
  if storage.is_remote(folder) or cache:
    return corpus.open_store(folder, cache=cache)
  with processes.first_alone(f'waiting for process 0 to check {folder}'):
    return corpus.open_store(folder)


def open_stages(
  config: ml_collections.ConfigDict,
  phases: Sequence[Phase],
  store: corpus.Store,
) -> dict[str, corpus.Store]:
  """Returns the store of each unit of phases, `store` or one of its own.

  The unit '' has `store`. Raises ValueError if another store has another
  vocabulary.
  """
  stores = {'': store}
  for phase in phases:
    if phase.unit in stores:
      continue
    stores[phase.unit] = store
    if not phase.folder:
      continue
    found = _open_built(phase.folder, config.data.cache)
    if found.tokenizer.fingerprint != store.tokenizer.fingerprint:
      raise ValueError(
        f'train.phases: {phase.unit}: the store has another vocabulary'
        f' ({found.tokenizer.description}, {found.vocab_size:,} pieces) than'
        f' {store.folder} ({store.tokenizer.description},'
        f' {store.vocab_size:,}): prepare it with --tokenizer {store.folder}'
      )
    stores[phase.unit] = found
  return stores


def by_digest(
  phases: Sequence[Phase], described: Mapping[str, Json], done: int
) -> list[Phase]:
  """Returns the phases of the first `done` steps, with digests of stores."""
  digests = described.get('stages', {})
  return [
    phase._replace(unit=digests.get(phase.unit, phase.unit))
    for phase in training_phases.cut_phases(phases, done)
  ]


def describe(stores: Mapping[str, corpus.Store]) -> dict[str, Json]:
  """Returns sources, sizes and digests of the run's store and its vocabulary.

  `stages` has the digests of the other stores, by the unit of their phases.
  """
  main = stores['']
  digests = {
    unit: store.meta['digest'] for unit, store in stores.items() if ':' in unit
  }
  found = {
    **main.meta['spec'],
    'words': main.meta['audit']['words'],
    'tokens': main.meta['audit']['tokens'],
    'digest': main.meta['digest'],
    'vocabulary': main.tokenizer.fingerprint,
  }
  return found | ({'stages': digests} if digests else {})
