"""Folders that Hugging Face's classes and AutoTokenizer open."""

from collections.abc import Mapping

from etils import epath

from data.vocabulary import tokenizer_export
from models.pretrained import gpt, hugging_face
from models.pretrained.weights import NO_SOFTMAX
from train.exports.exported import Export
from train.host import console
from train.host.files import Json

# Key of Hugging Face's config -> attribute of a tokenizer.
SYMBOLS = {
  'pad_token_id': 'pad_id',
  'bos_token_id': 'end_of_text_id',
  'eos_token_id': 'end_of_text_id',
}
# Kind of a task -> what the config of a BERT says beside the sizes.
OF_KIND = {
  'choice': {'architectures': ['BertForMultipleChoice']},
  'regression': {'problem_type': 'regression'},
}
# Parts of a Bert without its heads, and of a Gpt without the heads of tasks.
ENCODER = ('embeddings', 'layers', 'pooler', 'final_norm')


def write(
  folder: epath.Path, export: Export, params: Mapping, *, encoder: bool = False
) -> None:
  """Writes config.json, model.safetensors and the tokenizer's files.

  With `encoder` without heads. Raises ValueError if Hugging Face has no such
  model.
  """
  found = export.weights
  own, model = found.tokenizer, found.model
  config: dict[str, Json] = {
    key: getattr(own, name)
    for key, name in SYMBOLS.items()
    if hasattr(own, name)
  }
  if found.labels and not export.vectors:
    numbers = {name: int(number) for number, name in found.labels.items()}
    config |= {'id2label': dict(found.labels), 'label2id': numbers}
  if encoder:
    params = {part: params[part] for part in ENCODER if part in params}
    if hasattr(model, 'heads'):
      model = model.clone(heads=tuple({'pooler'} & {*params}))
  elif getattr(model, 'num_token_types', 0):
    config |= OF_KIND.get(export.task.get('kind'), {})
  if NO_SOFTMAX in found.notes:
    config |= gpt.HEADLESS[found.name]
  hugging_face.write_folder(folder, model, params, config)
  if own is None:
    console.say(
      f'{found.folder} holds no vocabulary: the weights are written alone.'
    )
    return
  tokenizer_export.export(
    own,
    folder,
    max_length=model.max_length,
    token_types=bool(getattr(model, 'num_token_types', 0)),
  )
