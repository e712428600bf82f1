"""What is asked of an export, and whether a model can be written so."""

from typing import NamedTuple

from data.inputs import framing
from models.pretrained.weights import SentenceForm, Weights
from train.architectures import families
from train.host import files
from train.host.files import Json
from train.params import opened
from train.run import workdirs
from train.transfer import predictors, task_outputs
from train.vectors.request import POOLS

FORMS = ('transformers', 'sentence-transformers', 'onnx')  # as train.weights
# Of `--form`: the families that can have it. Any family has the first, where
# Hugging Face has such a model, and an ELMo its own.
_FAMILIES = {
  'sentence-transformers': ('bert',),
  'onnx': ('bert', 'gpt', 'gpt2'),
}


class ExportRequest(NamedTuple):
  """How a model is to be written.

  Attributes:
    form: one of `FORMS`.
    pool: what makes the vector of a sentence: 'mean', 'cls' or 'last'; None for
      the pool that the weights were trained with.
    normalize: scale these vectors to length 1; None for as trained.
    int8: round the matrices of an ONNX file to 8 bits.
    licence: the licence of the weights, for the model card.
  """

  form: str = FORMS[0]
  pool: str | None = None
  normalize: bool | None = None
  int8: bool = False
  licence: str | None = None


class Export(NamedTuple):
  """Open weights that can be written as requested.

  Attributes:
    weights: the open weights; no parameter is read yet.
    request: what is asked.
    vectors: how the vectors of sentences are made; None for an export without.
    config: the config of the run that trained them; None of published weights.
    results: of this run, if it has ended.
    task: the facts of its task; {} for a pre-training.
  """

  weights: Weights
  request: ExportRequest
  vectors: SentenceForm | None
  config: Json
  results: Json
  task: dict[str, Json]


def reads_types(weights: Weights) -> bool:
  """Returns whether a model is framed as a BERT, whose tokens have types."""
  form = families.ARCHITECTURES[weights.name].form
  return framing.FORMS[form].token_types


def plan(weights: Weights, request: ExportRequest) -> Export:
  """Checks that weights can be written as requested.

  Raises ValueError, naming what another program could not compute.
  """
  weights.check_problems()
  config = results = None
  task: dict[str, Json] = {}
  if weights.kind == 'workdir':
    config = workdirs.read_config(weights.folder)
    results = workdirs.read_results(weights.folder)
    file = weights.folder / task_outputs.TASK_FILE
    task = files.read_json(file) if file.exists() else {}
  vectors = _vectors(weights, request)
  _check_form(weights, request, vectors)
  if config is not None and 'task' in config and not vectors:
    _check_task(weights, config, request)
  return Export(weights, request, vectors, config, results, task)


def _vectors(weights: Weights, request: ExportRequest) -> SentenceForm | None:
  """Returns how sentences get vectors, of the weights and the request."""
  form = weights.sentence_form
  asked = request.pool is not None or request.normalize is not None
  if request.form == 'transformers':
    if asked:
      raise ValueError(
        '--pool and --normalize are of --form sentence-transformers and onnx:'
        ' transformers has no vectors of sentences'
      )
    return None
  if request.form == 'onnx' and form is None and not asked:
    return None
  form = form or SentenceForm('mean')
  if request.pool is not None:
    form = form._replace(pool=request.pool)
  if request.normalize is not None:
    form = form._replace(normalize=request.normalize)
  return form


def _check_form(
  weights: Weights, request: ExportRequest, vectors: SentenceForm | None
) -> None:
  if request.form != FORMS[0] and not families.is_for(
    weights.name, request.form
  ):
    raise ValueError(
      f'{weights.folder} holds a model of the kind {weights.name}, expected'
      f' {" or ".join(families.names_for(request.form))} for'
      f' --form={request.form}'
    )
  if request.int8 and request.form != 'onnx':
    raise ValueError(f'--int8 is of --form=onnx, found --form={request.form}')
  if getattr(weights.model, 'left_to_right', False):
    raise ValueError(
      f'{weights.folder} holds a Bert that reads from left to right: the'
      ' classes of Hugging Face would read both ways with its weights'
    )
  if vectors is not None:
    family = families.ARCHITECTURES[weights.name]
    pools = POOLS['sentence', family.reads_both_ways(weights.model)]
    if vectors.pool not in pools:
      raise ValueError(
        f'--pool={vectors.pool}: expected {" or ".join(pools)} of a'
        f' {weights.name}'
      )
    if weights.tokenizer is None:
      weights.check_complete()


def _check_task(weights: Weights, config: Json, request: ExportRequest) -> None:
  """Refuses fine-tuned models that no class or graph of others computes."""
  if weights.reads_words:
    return
  parts = {path.partition('/')[0] for path in weights.shapes}
  between = sorted(parts & {*opened.BETWEEN})
  if between:
    raise ValueError(
      f'{weights.folder}: no class of Hugging Face has {" + ".join(between)}'
      ' between an encoder and its linear head'
    )
  features = config.task.features
  if features != 'last':
    raise ValueError(
      f'{weights.folder}: the head reads the features {features!r}, expected'
      " 'last', the last layer, which the heads of other programs read"
    )
  if reads_types(weights):
    return
  if request.form == 'transformers':
    raise ValueError(
      f'{weights.folder} holds a fine-tuned {weights.name}: the heads of'
      " Hugging Face's classes have no bias and read another token;"
      ' --form=onnx writes it with its head'
    )
  if predictors.open_member(weights.folder).program.model.both_orders:
    raise ValueError(
      f'{weights.folder} reads a pair in both orders at once, expected a row'
      ' for each answer for --form=onnx'
    )
