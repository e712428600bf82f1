"""Text of TensorFlow Datasets; TensorFlow is imported on use, not before."""

import dataclasses
import re
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np

from data.text import languages


@dataclasses.dataclass(frozen=True)
class TextSplit:
  """The text field of one split of a prepared data set.

  `name` has config and version; `split` is as TFDS writes it ('train[:10%]');
  `num_bytes` is the size on disk, estimated for a part of a split.
  """

  name: str
  split: str
  field: str
  num_records: int
  num_bytes: int
  builder: Any

  def texts(self) -> Iterator[str]:
    """Streams the records' text in their order; it must be UTF-8."""
    import tensorflow_datasets as tfds

    _hide_accelerators()
    dataset = self.builder.as_dataset(
      split=self.split,
      shuffle_files=False,
      decoders=tfds.decode.PartialDecoding({self.field: True}),
    )
    for number, record in enumerate(dataset.as_numpy_iterator()):
      try:
        yield record[self.field].decode()
      except UnicodeDecodeError as error:
        raise ValueError(
          f'TFDS {self.name}, split {self.split}, record {number:,}: field '
          f'{self.field} is not UTF-8 at byte {error.start:,}'
        ) from None


def open_split(spec: str, text_field: str) -> TextSplit:
  """Opens `NAME[/config][:version][:split]`, 'train' by default.

  TFDS keeps data in TFDS_DATA_DIR, else in ~/tensorflow_datasets.
  """
  name, split = _parse(spec)
  builder = open_builder(spec, name)
  splits = builder.info.splits
  try:
    num_records = splits[split].num_examples
  except (KeyError, ValueError, AssertionError) as error:
    raise ValueError(
      f'source tfds:{spec}: no split {split!r}; the splits of {name} are '
      f'{sorted(splits)} ({error})'
    ) from None
  total = max(1, splits.total_num_examples)
  return TextSplit(
    name=builder.info.full_name,
    split=split,
    field=_text_feature(spec, builder.info.features, text_field),
    num_records=num_records,
    num_bytes=int(builder.info.dataset_size) * num_records // total,
    builder=builder,
  )


def needs_download(spec: str) -> bool:
  """Returns whether `open_source` would download a set."""
  return not is_prepared(spec.removeprefix(languages.TFDS))


def is_prepared(spec: str, folder: str | None = None) -> bool:
  """Returns whether `open_split` needs no download."""
  return _find_builder(spec, _parse(spec)[0], folder).is_prepared()


def _parse(spec: str) -> tuple[str, str]:
  """Returns the data set and the split of a source."""
  # A split may hold colons: train[10:20].
  match = re.fullmatch(r'([^:]+(?::[\d*]+\.[\d*]+\.[\d*]+)?)(?::(.+))?', spec)
  if match is None:
    raise ValueError(
      f'source tfds:{spec}: expected tfds:NAME[/config][:version][:split]'
    )
  return match[1], match[2] or 'train'


def _find_builder(spec: str, name: str, folder: str | None = None) -> Any:
  try:
    import tensorflow_datasets as tfds
  except ModuleNotFoundError as error:
    raise ValueError(
      f'source tfds:{spec}: {error.name} is not installed: pip install'
      ' tensorflow-datasets tensorflow-cpu'
    ) from None
  _hide_accelerators()
  try:
    return tfds.builder(name, data_dir=folder, try_gcs=False)
  except (tfds.core.DatasetNotFoundError, ValueError, RuntimeError) as error:
    raise ValueError(
      f'source tfds:{spec}: no data set {name!r}, neither known to TFDS nor '
      'prepared in its folder (set TFDS_DATA_DIR to where yours is). '
      f'TFDS says: {str(error).strip().splitlines()[0]}'
    ) from None


def _check_network() -> None:
  """Raises OSError where no name is resolved, which TFDS tries for minutes."""
  if urllib.request.getproxies():
    return  # they resolve names
  try:
    socket.getaddrinfo('storage.googleapis.com', 443)
  except OSError as error:
    raise OSError(f'there is no network: {error.strerror}') from None


def open_builder(spec: str, name: str, folder: str | None = None) -> Any:
  """Returns TFDS's builder of NAME[/config][:version], its data prepared."""
  builder = _find_builder(spec, name, folder)
  if not builder.is_prepared():
    try:
      _check_network()
      builder.download_and_prepare()
    except Exception as error:
      raise ValueError(
        f'source tfds:{spec}: not in {builder.data_dir} (TFDS_DATA_DIR), and '
        f'TFDS could not download it: {error}'
      ) from error
  return builder


def _text_feature(spec: str, features: Any, text_field: str) -> str:
  """Returns the named feature of text; by default also the only one of text."""
  names = sorted(
    name
    for name, feature in features.items()
    if getattr(feature, 'shape', None) == ()
    and np.dtype(feature.np_dtype) == np.dtype(object)
  )
  if text_field in names:
    return text_field
  if text_field == 'text' and len(names) == 1:
    return names[0]
  raise ValueError(
    f'source tfds:{spec}: no text field {text_field!r}; its text fields are '
    f'{names}. Name one of them (text_field)'
  )


def _hide_accelerators() -> None:
  """Keeps TensorFlow off the accelerator, which is JAX's."""
  import tensorflow as tf

  for kind in ('GPU', 'TPU'):
    try:
      tf.config.set_visible_devices([], kind)
    except RuntimeError:  # TensorFlow has been used already
      pass
