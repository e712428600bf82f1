"""Writes our weights as folders that Hugging Face's classes open."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import safetensors.numpy
from etils import epath
from flax import linen as nn

from models import bert, gpt
from models.pretrained import bert as pretrained_bert
from models.pretrained import gpt as pretrained_gpt
from models.pretrained import weight_files

CONFIG_FILE = 'config.json'
WEIGHTS_FILE = 'model.safetensors'


def write_folder(
  folder: epath.PathLike,
  model: nn.Module,
  params: Mapping,
  extra_config: Mapping[str, Any] | None = None,
  *,
  overwrite: bool = False,
) -> None:
  """Writes config.json and model.safetensors.

  Each file appears when it is complete, the config last.

  Args:
    folder: made if it is not there.
    model: a Bert or a Gpt.
    params: of the model, unboxed; of a Bert with or without one of the extra
      heads 'classifier', 'token_classifier' and 'span_classifier'.
    extra_config: goes into config.json, such as the names of labels or the ids
      of special tokens.
    overwrite: write into a folder that holds something.

  Raises:
    FileExistsError: if the folder holds something.
    ValueError: if no class there can do what the model does.
  """
  folder = epath.Path(folder)
  if not overwrite and folder.exists() and any(folder.iterdir()):
    raise FileExistsError(
      f'{folder} is not empty: name a new folder, or say to overwrite'
    )
  if isinstance(model, bert.Bert):
    if model.left_to_right:
      raise ValueError(
        'the model is a Bert that reads from left to right: the classes of'
        ' Hugging Face would read both ways with its weights'
      )
    architecture, arrays = pretrained_bert.to_hugging_face(params, model)
    config = pretrained_bert.to_config(model)
  elif isinstance(model, gpt.Gpt):
    architecture, arrays = pretrained_gpt.to_hugging_face(params, model)
    config = pretrained_gpt.to_config(model)
  else:
    raise ValueError(
      f'the model is a {type(model).__name__}, expected a Bert or a Gpt: there'
      ' is no other of ours at Hugging Face'
    )
  config['architectures'] = [architecture]
  for head in ('classifier', 'token_classifier'):
    if head in params:
      names = [f'LABEL_{i}' for i in range(len(params[head]['bias']))]
      config['id2label'] = {str(i): name for i, name in enumerate(names)}
      config['label2id'] = {name: i for i, name in enumerate(names)}
  config |= dict(extra_config or {})
  folder.mkdir(parents=True, exist_ok=True)
  metadata = {'format': 'pt'}  # PyTorch's readers ask for it
  with _partial(folder / WEIGHTS_FILE) as file:
    if weight_files.is_remote(file):
      file.write_bytes(safetensors.numpy.save(arrays, metadata))
    else:  # without another copy in memory
      file.touch()
      mode = os.stat(file).st_mode
      safetensors.numpy.save_file(arrays, file, metadata)
      os.chmod(file, mode)  # else nobody else may read it
  with _partial(folder / CONFIG_FILE) as file:
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + '\n')


@contextlib.contextmanager
def _partial(file: epath.Path) -> Iterator[epath.Path]:
  """Yields another name for a file, which gets its own at the end."""
  partial = file.with_name(f'{file.name}.partial')
  try:
    yield partial
    partial.replace(file)
  finally:
    partial.unlink(missing_ok=True)
