"""A model as an ONNX file: one graph, for any batch and length.

PyTorch exports the class that opens our folder for transformers, so this file
knows no layer of a model: one who changes the ONNX operators of attention, or
adds a family, changes nothing here. (A graph written by hand with onnx's helper
needs no PyTorch, and would be a second description of every family.)
"""

import importlib.util
import json
import logging
import shutil
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from etils import epath

from data import scratch
from models.pretrained.hugging_face import CONFIG_FILE, WEIGHTS_FILE
from models.pretrained.weights import SentenceForm
from train.exports import sentence_folder, transformers_folder
from train.exports.exported import Export, reads_types

if TYPE_CHECKING:
  import torch

MODEL_FILE = 'model.onnx'
PACKAGES = ('onnx', 'onnxruntime', 'onnxscript', 'torch', 'transformers')
INPUTS = ('input_ids', 'attention_mask', 'token_type_ids')  # types of a BERT
VECTORS = ('last_hidden_state', 'sentence_embedding')
# Class of Hugging Face -> its fields that are outputs of the graph.
OUTPUTS = {
  'BertModel': VECTORS[:1],
  'BertForMaskedLM': ('logits',),
  'BertForPreTraining': ('prediction_logits', 'seq_relationship_logits'),
  'BertForNextSentencePrediction': ('logits',),
  'BertForSequenceClassification': ('logits',),
  'BertForTokenClassification': ('logits',),
  'BertForMultipleChoice': ('logits',),
  'BertForQuestionAnswering': ('start_logits', 'end_logits'),
  'RobertaModel': VECTORS[:1],
  'RobertaForMaskedLM': ('logits',),
  'RobertaForSequenceClassification': ('logits',),
  'RobertaForTokenClassification': ('logits',),
  'RobertaForMultipleChoice': ('logits',),
  'RobertaForQuestionAnswering': ('start_logits', 'end_logits'),
  'ModernBertModel': VECTORS[:1],
  'ModernBertForMaskedLM': ('logits',),
  'ModernBertForSequenceClassification': ('logits',),
  'OpenAIGPTModel': VECTORS[:1],
  'OpenAIGPTLMHeadModel': ('logits',),
  'GPT2Model': VECTORS[:1],
  'GPT2LMHeadModel': ('logits',),
}
# Heads of a GPT that its classes do not have: of the last token, of each.
GPT_HEADS = ('classifier', 'token_classifier')
# Onnxruntime's 8 bits: each block of so many weights has a scale of its own,
# and so have the activations, which are rounded as they come. With one scale a
# tensor the vectors of all-MiniLM-L6-v2 lose more: see train/README.md.
BITS, BLOCK, ACCURACY_LEVEL = 8, 32, 4
# Of outputs, beside PyTorch's: absolute, of values below 1; else relative.
TOLERANCE = 1e-4


def check_packages() -> None:
  """Raises ModuleNotFoundError for packages that `[onnx]` brings."""
  missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
  if missing:
    raise ModuleNotFoundError(
      f"--form=onnx needs {', '.join(missing)}: pip install -e '.[onnx]' brings"
      ' them'
    )


def write(folder: epath.Path, export: Export, params: Mapping) -> None:
  """Writes model.onnx, config.json and the tokenizer's files.

  The file is run by onnxruntime beside PyTorch before it is in the folder.
  Raises ValueError for a head that no graph has, or where both differ.
  """
  found = export.weights
  head = _head(export)
  bare = bool(head or export.vectors)
  with scratch.temporary('onnx') as hidden:
    plain = epath.Path(hidden / 'plain')
    transformers_folder.write(plain, export, params, encoder=bare)
    model = _open(plain, bare)
    graph = _graph(model, export.vectors, head and (head, params[head]))
    graph_file = hidden / MODEL_FILE
    rank = 3 if type(model).__name__.endswith('ForMultipleChoice') else 2
    has_types = getattr(found.model, 'num_token_types', 0)
    inputs = INPUTS if has_types else INPUTS[:2]
    size = found.model.vocab_size
    most = found.model.max_length
    _export(graph, graph_file, inputs, rank, most)
    _check(graph, graph_file, inputs, rank, size, most)
    if export.request.int8:
      _round(graph_file)
    for file in (*hidden.iterdir(), *plain.iterdir()):
      if file.name != WEIGHTS_FILE and not file.is_dir():
        with file.open('rb') as source, (folder / file.name).open('wb') as to:
          shutil.copyfileobj(source, to)  # the folder may be in a bucket
  if export.vectors is not None:
    # Servers pool the states of tokens as these files say.
    sentence_folder.write_settings(
      folder, export.vectors, found.model.embed_dim, found.model.max_length
    )


def _head(export: Export) -> str | None:
  """Returns the head that is added to a GPT's encoder, if there is one."""
  found = export.weights
  if reads_types(found) or not found.heads or export.vectors:
    return None
  (head,) = found.heads
  if head not in GPT_HEADS:
    raise ValueError(
      f'{found.folder} has the head {head}, expected {" or ".join(GPT_HEADS)}'
      f' of a {found.name} for --form=onnx'
    )
  return head


def _open(folder: epath.Path, bare: bool) -> 'torch.nn.Module':
  """Returns the model of our folder in PyTorch, without its heads if `bare`."""
  import transformers

  config = json.loads((folder / CONFIG_FILE).read_text())
  (name,) = config['architectures']
  if bare:
    name = name.replace('LMHeadModel', 'Model')
  if name not in OUTPUTS:
    raise ValueError(
      f'Hugging Face opens the model as {name}, expected one of'
      f' {", ".join(OUTPUTS)} for --form=onnx'
    )
  transformers.utils.logging.disable_progress_bar()
  # Attention in plain operators, which onnxruntime joins as it likes; PyTorch's
  # own adds guards against empty rows, and is slower there.
  model = getattr(transformers, name).from_pretrained(
    folder, attn_implementation='eager'
  )
  return model.eval()


def _graph(
  model: 'torch.nn.Module',
  vectors: SentenceForm | None,
  head: tuple[str, Mapping] | None,
) -> 'torch.nn.Module':
  """Returns a module from inputs [B, T] to the outputs of the file.

  It has `output_names`. Of choices the inputs are [B, K, T].
  """
  import torch

  class Graph(torch.nn.Module):
    def __init__(self):
      super().__init__()
      self.model = model
      self.output_names = OUTPUTS[type(model).__name__]
      if vectors is not None:
        self.output_names = VECTORS
      if head is not None:
        self.output_names = ('logits',)
        kernel, bias = (
          torch.tensor(np.asarray(head[1][name])) for name in ('kernel', 'bias')
        )
        self.kernel = torch.nn.Parameter(kernel)
        self.bias = torch.nn.Parameter(bias)

    def forward(
      self,
      input_ids: torch.Tensor,
      attention_mask: torch.Tensor,
      token_type_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
      inputs = {'input_ids': input_ids, 'attention_mask': attention_mask}
      if token_type_ids is not None:
        inputs['token_type_ids'] = token_type_ids
      if hasattr(self.model.config, 'use_cache'):
        inputs['use_cache'] = False
      found = self.model(**inputs, return_dict=True)
      if head is not None:
        states = found.last_hidden_state
        if head[0] == 'classifier':
          states = _at_last(states, attention_mask)
        return (states @ self.kernel + self.bias,)
      if vectors is None:
        return tuple(found[name] for name in self.output_names)
      states = found.last_hidden_state
      return states, _pooled(states, attention_mask, vectors)

  return Graph().eval()


def _at_last(
  states_BTD: 'torch.Tensor', mask_BT: 'torch.Tensor'
) -> 'torch.Tensor':
  """Returns the states [B, D] of the last real tokens."""
  last_B = (mask_BT.sum(dim=1) - 1).clamp(min=0)
  places = last_B[:, None, None].expand(-1, 1, states_BTD.shape[-1])
  return states_BTD.gather(1, places)[:, 0]


def _pooled(
  states_BTD: 'torch.Tensor', mask_BT: 'torch.Tensor', form: SentenceForm
) -> 'torch.Tensor':
  """Returns the vectors of sentences [B, D], as sentence-transformers does."""
  import torch

  if form.pool == 'cls':
    vectors_BD = states_BTD[:, 0]
  elif form.pool == 'last':
    vectors_BD = _at_last(states_BTD, mask_BT)
  else:
    mask_BT1 = mask_BT[..., None].to(states_BTD.dtype)
    sums_BD = (states_BTD * mask_BT1).sum(dim=1)
    vectors_BD = sums_BD / mask_BT1.sum(dim=1).clamp(min=1e-9)
  if form.normalize:
    return torch.nn.functional.normalize(vectors_BD, dim=-1)
  return vectors_BD


def _example(
  shape: Sequence[int], names: Sequence[str], vocab_size: int
) -> dict[str, np.ndarray]:
  """Returns inputs of a shape, the odd rows of half the length."""
  draw = np.random.default_rng(0)
  ids = draw.integers(0, vocab_size, shape)
  mask = np.ones(shape, np.int64)
  mask[1::2, ..., max(1, shape[-1] // 2) :] = 0
  types = np.zeros(shape, np.int64)
  types[..., 2:] = 1
  return dict(zip(names, (ids, mask, types), strict=False))


def _export(
  graph: 'torch.nn.Module',
  file: epath.PathLike,
  names: Sequence[str],
  rank: int,
  max_length: int,
) -> None:
  import torch

  shape = (2, 3, 4)[3 - rank :]
  sizes = ('batch', 'choices', 'length')[3 - rank :]
  dims = [torch.export.Dim(name) for name in sizes[:-1]]
  dims.append(torch.export.Dim('length', max=max_length))
  inputs = _example(shape, names, 2).values()
  logger = logging.getLogger('torch.onnx')
  level = logger.level
  try:
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
      # Of deprecations inside, and of names of axes that it finds equal.
      warnings.simplefilter('ignore')
      program = torch.onnx.export(
        graph,
        tuple(map(torch.from_numpy, inputs)),
        input_names=list(names),
        output_names=list(graph.output_names),
        dynamic_shapes=[dict(enumerate(dims))] * len(names),
        dynamo=True,
        verbose=False,
      )
      program.save(str(file))
  finally:
    logger.setLevel(level)


def _check(
  graph: 'torch.nn.Module',
  file: epath.PathLike,
  names: Sequence[str],
  rank: int,
  vocab_size: int,
  max_length: int,
) -> None:
  """Raises ValueError if onnxruntime computes something else than PyTorch."""
  import onnxruntime
  import torch

  session = onnxruntime.InferenceSession(
    str(file), providers=['CPUExecutionProvider']
  )
  for shape in ((1, 1, 1), (3, 2, min(9, max_length)), (1, 4, max_length)):
    inputs = _example(shape[3 - rank :], names, vocab_size)
    found = session.run(None, inputs)
    with torch.no_grad():
      expected = graph(*map(torch.from_numpy, inputs.values()))
    mask = inputs['attention_mask'].astype(bool)
    for name, ours, theirs in zip(
      graph.output_names, found, expected, strict=True
    ):
      theirs = theirs.numpy()
      if ours.shape[:rank] == mask.shape:  # of tokens: padding is anything
        ours, theirs = ours[mask], theirs[mask]
      furthest = np.abs(ours - theirs).max(initial=0)
      if not furthest <= TOLERANCE * max(1.0, np.abs(theirs).max(initial=0)):
        raise ValueError(
          f'onnxruntime {onnxruntime.__version__} gives another {name} than'
          f' PyTorch {torch.__version__}, by {furthest:.2g}: no file is written'
        )


def _round(file: epath.PathLike) -> None:
  """Rounds the weights of matrix products, as `BITS` and `BLOCK` say."""
  import onnx
  from onnxruntime.quantization import matmul_nbits_quantizer

  logging.getLogger(matmul_nbits_quantizer.__name__).setLevel(logging.ERROR)
  rounding = matmul_nbits_quantizer.MatMulNBitsQuantizer(
    onnx.load(str(file)),
    bits=BITS,
    block_size=BLOCK,
    is_symmetric=True,
    accuracy_level=ACCURACY_LEVEL,
  )
  rounding.process()
  rounding.model.save_model_to_file(str(file), False)
