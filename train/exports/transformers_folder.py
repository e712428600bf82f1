"""Folders that Hugging Face's classes and AutoTokenizer open."""

from collections.abc import Mapping

from etils import epath

from data.scoring.kinds import KINDS, Kind
from data.vocabulary import tokenizer_export
from models.pretrained import gpt, hugging_face, modernbert, roberta
from models.pretrained.weights import NO_SOFTMAX
from train.exports.exported import Export, reads_types
from train.host import console
from train.host.files import Json

# Key of Hugging Face's config -> attribute of a tokenizer.
SYMBOLS = {
  'pad_token_id': 'pad_id',
  'bos_token_id': 'end_of_text_id',
  'eos_token_id': 'end_of_text_id',
}
# Likewise of a vocabulary of RoBERTa's kind.
OF_ROBERTA = {'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'}
# Parts of a Bert without its heads, and of a Gpt without the heads of tasks.
ENCODER = ('embeddings', 'layers', 'pooler', 'final_norm')


def write(
  folder: epath.Path, export: Export, params: Mapping, *, encoder: bool = False
) -> None:
  """Writes config.json, model.safetensors and the tokenizer's files.

  With `encoder` without heads. Raises ValueError if Hugging Face has no such
  model.
  """
  found, kind = export.weights, KINDS.get(export.task.get('kind'), Kind)
  own, model = found.tokenizer, found.model
  is_roberta = getattr(own, 'kind', None) == 'roberta'
  symbols = SYMBOLS | OF_ROBERTA if is_roberta else SYMBOLS
  config: dict[str, Json] = {
    key: getattr(own, name)
    for key, name in symbols.items()
    if hasattr(own, name)
  }
  if found.labels and not export.vectors:
    numbers = {name: int(number) for number, name in found.labels.items()}
    config |= {'id2label': dict(found.labels), 'label2id': numbers}
  if encoder:
    params = {part: params[part] for part in ENCODER if part in params}
    if hasattr(model, 'heads'):
      model = model.clone(heads=tuple({'pooler'} & {*params}))
  as_roberta = None
  if reads_types(found) and not modernbert.is_like(model):
    if is_roberta and roberta.is_like(model):
      as_roberta = roberta.Form(own.pad_id, choice=kind.has_choices)
    if kind.has_choices and not (encoder or as_roberta):
      config['architectures'] = ['BertForMultipleChoice']
  if kind.loss == 'scores' and not encoder:
    config['problem_type'] = 'regression'  # else a pipeline takes the sigmoid
  if NO_SOFTMAX in found.notes:
    config |= gpt.HEADLESS[found.name]
  hugging_face.write_folder(folder, model, params, config, as_roberta)
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
