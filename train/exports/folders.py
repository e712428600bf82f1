"""Writes weights in the formats of other programs."""

import json

from etils import epath

from models.pretrained import elmo
from models.pretrained.hugging_face import CONFIG_FILE
from train.exports import exported, model_card, transformers_folder
from train.params import convert, opened


def export(
  weights: epath.PathLike,
  folder: epath.PathLike,
  tokenizer: epath.PathLike | None = None,
  request: exported.ExportRequest | None = None,
) -> None:
  """Writes weights into a new folder, in a form of `exported.FORMS`.

  transformers: config.json, model.safetensors and the tokenizer's files; for an
  ELMo options.json, lm_weights.hdf5 and words.txt. sentence-transformers: the
  encoder likewise, modules.json and the settings of its modules. onnx:
  model.onnx, config.json and the tokenizer's files. Each folder has a
  README.md, the model card.

  `weights` and `tokenizer` are as in `opened.open_weights`. Raises
  FileExistsError if the folder is there, and ValueError, before parameters are
  read, for a model that cannot be written so.
  """
  request = request or exported.ExportRequest()
  convert.check_new_folder(folder)
  found = opened.open_weights(weights, tokenizer)
  export = exported.plan(found, request)
  if request.form == 'onnx':
    from train.exports import onnx_file

    onnx_file.check_packages()
  with convert.new_folder(folder) as new:
    params = found.load()
    if found.reads_words:
      elmo.write_folder(new, found.model, params)
      if found.tokenizer is not None:
        found.tokenizer.save(new)
    elif request.form == 'onnx':
      onnx_file.write(new, export, params)
    elif request.form == 'sentence-transformers':
      from train.exports import sentence_folder

      sentence_folder.write(new, export, params)
    else:
      transformers_folder.write(new, export, params)
    name = epath.Path(folder).name or 'model'
    card = model_card.text(export, name, _architecture(new))
    (new / model_card.FILE).write_text(card)


def _architecture(folder: epath.Path) -> str:
  """Returns the class that a config names; '' without a config."""
  file = folder / CONFIG_FILE
  if not file.exists():
    return ''
  (name,) = json.loads(file.read_text())['architectures']
  return name
