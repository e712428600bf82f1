"""Writes weights as folders that Hugging Face's classes open."""

import json
import os
from collections.abc import Mapping
from typing import Any

import safetensors.numpy
from etils import epath
from flax import linen as nn

from models import bert, gpt
from models.pretrained import bert as pretrained_bert
from models.pretrained import gpt as pretrained_gpt
from models.pretrained import modernbert, roberta, weight_files

CONFIG_FILE = 'config.json'
WEIGHTS_FILE = 'model.safetensors'


def write_folder(
  folder: epath.PathLike,
  model: nn.Module,
  params: Mapping,
  extra_config: Mapping[str, Any] | None = None,
  as_roberta: roberta.Form | None = None,
) -> None:
  """Writes model.safetensors and then config.json into a new or empty folder.

  Raises FileExistsError if the folder is not empty, ValueError if Hugging Face
  has no such model. `params` are unboxed; a Bert's may have one of the heads
  'classifier', 'token_classifier' and 'span_classifier'. `extra_config` is
  added to config.json, such as names of labels or ids of special tokens. A Bert
  of BERT's form is written `as_roberta`, see `roberta.is_like`.
  """
  folder = epath.Path(folder)
  if folder.exists() and any(folder.iterdir()):
    raise FileExistsError(f'{folder} is not empty: name a new folder')
  if isinstance(model, bert.Bert):
    if model.left_to_right:
      raise ValueError(
        'the model is a Bert that reads from left to right: the classes of'
        ' Hugging Face would read both ways with its weights'
      )
    format_ = modernbert if modernbert.is_like(model) else pretrained_bert
    if format_ is pretrained_bert and (changed := modernbert.differs(model)):
      raise ValueError(
        f'the model has {", ".join(changed)}, between BERT and ModernBERT: no'
        ' class of Hugging Face computes it'
      )
    if format_ is pretrained_bert and as_roberta:
      format_ = as_roberta
  elif isinstance(model, gpt.Gpt):
    format_ = pretrained_gpt
  else:
    raise ValueError(
      f'the model is a {type(model).__name__}, expected a Bert or a Gpt:'
      ' Hugging Face has no other family of ours'
    )
  if model.null_key:
    raise ValueError(
      'the model has null keys (model.null_key=True): the classes of Hugging'
      ' Face have none'
    )
  config = format_.to_config(model)  # refuses what there is no class of
  architecture, arrays = format_.to_hugging_face(params, model)
  config |= {'architectures': [architecture]}
  for head in ('classifier', 'token_classifier'):
    if head in params:
      names = [f'LABEL_{i}' for i in range(len(params[head]['bias']))]
      config['id2label'] = {str(i): name for i, name in enumerate(names)}
      config['label2id'] = {name: i for i, name in enumerate(names)}
  config |= dict(extra_config or {})
  folder.mkdir(parents=True, exist_ok=True)
  file, metadata = (
    folder / WEIGHTS_FILE,
    {'format': 'pt'},
  )  # PyTorch asks for it
  if weight_files.is_remote(file):
    file.write_bytes(safetensors.numpy.save(arrays, metadata))
  else:  # without another copy in memory
    file.touch()
    mode = os.stat(file).st_mode
    safetensors.numpy.save_file(arrays, file, metadata)
    os.chmod(file, mode)  # else nobody else may read it
  # Last: a folder without a config, perhaps incomplete, is never opened.
  (folder / CONFIG_FILE).write_text(
    json.dumps(config, indent=2, sort_keys=True) + '\n'
  )
