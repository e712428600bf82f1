"""Data sets of Hugging Face's hub, through its package `datasets`."""

import contextlib
import functools
import socket
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from data.text.tables import arrow_files
from data.text.tables.table import Progress, Table, Values

_BATCH = 1000  # rows that are read at a time


def open_set(
  spec: str, name: str, config: str, split: str
) -> tuple[list[Table], str]:
  """Returns the table of a split of a set, downloaded if needed, and a note.

  Raises ValueError, in one line, if it cannot be had.
  """
  _package(spec)
  has_network = _has_network()
  with _offline(not has_network):
    data, config, split = _load(spec, name, config, split, has_network)
  schema = data.features.arrow_schema
  facts = data.info.download_checksums or {}
  title = ':'.join(filter(None, (name, config, split)))
  table = Table(
    name=f'hf:{title}',
    types={field.name: str(field.type) for field in schema},
    texts=arrow_files.texts_of(schema),
    read=functools.partial(_read, data, f'hf:{title}'),
    num_bytes=data.data.nbytes,
    # The addresses of the files name the revision.
    stamp=[title, len(data), sorted(map(str, facts))],
    classes=arrow_files.classes_of(schema),
  )
  return [table], f"{title} of Hugging Face's hub, {len(data):,} records"


def is_prepared(spec: str, name: str, config: str, split: str) -> bool:
  """Returns whether a split of a set can be opened without the network."""
  _package(spec)
  try:
    with _offline(True):
      _load(spec, name, config, split, has_network=False)
  except ValueError:
    return False
  return True


@contextlib.contextmanager
def _offline(offline: bool) -> Iterator[None]:
  """Keeps the package off the network, where it would try for a minute."""
  import datasets
  from huggingface_hub import constants

  known = datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE
  if offline:
    datasets.config.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE = True
  try:
    yield
  finally:
    datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE = known


def _has_network() -> bool:
  """Returns whether the hub's name can be resolved, or a proxy does it."""
  if urllib.request.getproxies():
    return True
  try:
    socket.getaddrinfo('huggingface.co', 443)
  except OSError:
    return False
  return True


def _package(spec: str) -> Any:
  try:
    import datasets
  except ImportError:
    raise ValueError(
      f'source {spec!r}: no such folder, and a set of the hub needs the package'
      " datasets: pip install -e '.[hf]'"
    ) from None
  return datasets


def _load(
  spec: str, name: str, config: str, split: str, has_network: bool
) -> tuple[Any, str, str]:
  """Returns the data of a split, and the names of config and split."""
  datasets = _package(spec)
  try:
    if (
      split and not config and split in datasets.get_dataset_config_names(name)
    ):
      config, split = split, ''
    split = split or 'train'
    data = datasets.load_dataset(name, config or None, split=split)
  except Exception as error:  # noqa: BLE001 the package raises many kinds
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = ' '.join(lines[:2]) or type(error).__name__
    if not has_network:
      why = 'there is no network, and the cache does not hold it'
    raise ValueError(
      f'source {spec!r}: no such folder, and the package datasets could not'
      f' open {name!r} on the hub or in its cache: {why}'
    ) from None
  return data, config, split


def _read(
  data: Any, name: str, columns: Sequence[str], progress: Progress
) -> Iterator[tuple[int, Values]]:
  number, total = 0, len(data)
  for part in data.with_format('arrow').iter(batch_size=_BATCH):
    for whole in part.to_batches():
      for batch in arrow_files.parts_of(whole):
        rows = arrow_files.values_of(name, batch, columns, number)
        for values in rows:
          number += 1
          yield number, values
    progress(data.data.nbytes * number // total)
