"""AllenNLP 0.9.0 on the installed PyTorch, and its weights as ours.

The package is fetched once, without the packages that it asks for: stand-ins
take their places while its modules are imported.
"""

import contextlib
import functools
import importlib
import importlib.machinery
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import warnings
import zipfile

import numpy as np
import pytest

VERSION = '0.9.0'
FOLDER = pathlib.Path.home() / '.cache' / 'sesame-tests' / f'allennlp-{VERSION}'
# Its `__init__` files import all that AllenNLP has: these packages are empty.
EMPTY = (
  'allennlp',
  'allennlp.models',
  'allennlp.models.reading_comprehension',
)
# Packages whose classes the models name, but that nothing here uses.
ABSENT = (
  'allennlp.data',
  'allennlp.training',
  'boto3',
  'botocore',
  'h5py',
  'nltk',
  'overrides',
  'pytorch_pretrained_bert',
  'pytorch_transformers',
  'requests',
  'spacy',
  'tqdm',
  '_jsonnet',
)


def fetch() -> pathlib.Path:
  """Returns the folder that holds the package `allennlp`, or skips the test."""
  error = _download()
  if error:
    pytest.skip(f'pip cannot fetch allennlp {VERSION}: {error[-300:]}')
  return FOLDER


@functools.cache  # a registry that does not answer is asked by one test
def _download() -> str:
  """Fetches the package unless it is here; returns pip's error, '' if none."""
  if FOLDER.exists():
    return ''
  FOLDER.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=FOLDER.parent) as part:
    command = ('download', '--no-deps', '--dest', part, f'allennlp=={VERSION}')
    for attempt in range(3):
      time.sleep(20 * attempt)
      done = subprocess.run(
        [sys.executable, '-m', 'pip', *command],
        capture_output=True,
        text=True,
        timeout=300,
      )
      if not done.returncode:
        break
    else:
      return done.stderr
    (wheel,) = pathlib.Path(part).glob('*.whl')
    unpacked = pathlib.Path(part) / 'unpacked'
    zipfile.ZipFile(wheel).extractall(unpacked)
    with contextlib.suppress(OSError):  # another process was faster
      os.rename(unpacked, FOLDER)
  return ''


class _Anything:
  """A class of an absent package: takes all arguments, returns None."""

  def __init__(self, *args, **kwargs):
    pass

  def __call__(self, *args, **kwargs):
    return None


class _StandIn(types.ModuleType):
  """An absent module: each name in it is a class."""

  __path__ = ()

  def __getattr__(self, name):
    if name.startswith('__'):
      raise AttributeError(name)
    if name == 'overrides':
      return lambda method: method
    return type(name, (_Anything,), {})


class _Finder:
  """Makes the stand-ins and the empty packages."""

  def __init__(self, folder):
    self.folder = folder

  def find_spec(self, name, path=None, target=None):
    del path, target
    is_absent = any(f'{name}.'.startswith(f'{absent}.') for absent in ABSENT)
    if is_absent or name in EMPTY:
      return importlib.machinery.ModuleSpec(name, self, is_package=True)
    return None

  def create_module(self, spec):
    if spec.name not in EMPTY:
      return _StandIn(spec.name)
    module = types.ModuleType(spec.name)
    module.__path__ = [str(self.folder.joinpath(*spec.name.split('.')))]
    return module

  def exec_module(self, module):
    pass


def _is_ours(name: str) -> bool:
  roots = {absent.partition('.')[0] for absent in ABSENT} | {'allennlp'}
  return name.partition('.')[0] in roots


def load(*names: str) -> types.SimpleNamespace:
  """Returns modules below `allennlp`, each under the last part of its name.

  They leave nothing in `sys.modules`.
  """
  finder = _Finder(fetch())
  before = {
    name: sys.modules.pop(name) for name in [*filter(_is_ours, sys.modules)]
  }
  sys.meta_path.insert(0, finder)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      return types.SimpleNamespace(
        **{
          name.rpartition('.')[2]: importlib.import_module(f'allennlp.{name}')
          for name in names
        }
      )
  finally:
    sys.meta_path.remove(finder)
    for name in [*filter(_is_ours, sys.modules)]:
      del sys.modules[name]
    sys.modules.update(before)


# ---- Models without vocabularies and embedders ------------------------------


class Vocabulary:
  """A vocabulary of labels only."""

  def __init__(self, labels):
    self.labels = dict(enumerate(labels))

  def get_vocab_size(self, namespace):
    return len(self.labels)

  def get_index_to_token_vocabulary(self, namespace):
    return self.labels


def make_embedder(torch, width):
  """Returns an embedder of texts {'vectors': [B, T, D], 'mask': [B, T]}."""

  class Embedder(torch.nn.Module):
    _token_embedders = {}

    def forward(self, text):
      return text['vectors']

    def get_output_dim(self):
      return width

  return Embedder()


def make_texts(torch, batch):
  """Returns a text for `make_embedder` for each of a batch's P texts.

  Texts are padded to the longest of their kind, as by AllenNLP.
  """
  texts = []
  for p in range(batch.mask.shape[1]):
    mask = batch.mask[:, p]
    mask = mask[:, : mask.sum(axis=1).max()]
    texts.append(
      {
        'vectors': torch.tensor(
          batch.x[:, p, : mask.shape[1]], requires_grad=True
        ),
        'mask': torch.tensor(mask.astype('i8')),
      }
    )
  return texts


def make_added(torch, batch):
  """Returns the vectors to add for each of P texts, 0 at padding."""
  return [
    torch.tensor(
      np.where(batch.mask[:, p, :, None], batch.added[:, p], 0)[
        :, : batch.mask[:, p].sum(axis=1).max()
      ],
      requires_grad=True,
    )
    for p in range(batch.mask.shape[1])
  ]


def gradient_of(tensors, batch):
  """Returns the gradients of each text's vectors, [B, P, T, ...]."""
  T = batch.mask.shape[2]
  padded = [
    np.pad(tensor.grad.numpy(), ((0, 0), (0, T - tensor.shape[1]), (0, 0)))
    for tensor in tensors
  ]
  return np.where(batch.mask[..., None], np.stack(padded, axis=1), 0)


def disturb(torch, model):
  """Adds noise to all parameters, so that none is left at 0 or 1."""
  torch.manual_seed(0)
  with torch.no_grad():
    for parameter in model.parameters():
      parameter += 0.4 * torch.randn_like(parameter)


# ---- Weights ----------------------------------------------------------------


def _read(tensor, gradients):
  return (tensor.grad if gradients else tensor).detach().numpy().copy()


def linear(module, gradients=False, pool_size=None):
  """Returns kernel and bias of a `torch.nn.Linear`, of maxouts pooled."""
  kernel = _read(module.weight, gradients).T
  bias = _read(module.bias, gradients)
  if pool_size:
    kernel = kernel.reshape(len(kernel), -1, pool_size)
    bias = bias.reshape(-1, pool_size)
  return {'kernel': kernel, 'bias': bias}


def bilstm(module, gradients=False):
  """Returns a bidirectional `torch.nn.LSTM` as our BiLstm's parameters.

  PyTorch's gates are i, f, g, o and have two biases; ours i, g, f, o and one,
  to whose forget gate 1 is added at run time.
  """
  F = module.hidden_size

  def read(name, layer):
    both = []
    for suffix in ('', '_reverse'):
      gates = _read(getattr(module, f'{name}_l{layer}{suffix}'), gradients)
      gates = gates.reshape(4, F, -1)[[0, 2, 1, 3]]
      both.append(gates.transpose(2, 0, 1))
    return np.stack(both)

  params = {}
  for i in range(module.num_layers):
    bias = read('bias_ih', i)[:, 0]
    if not gradients:
      bias = bias + read('bias_hh', i)[:, 0]
      bias[:, 2] -= 1
    params[f'layer_{i}'] = {
      'input_kernel': read('weight_ih', i),
      'recurrent_kernel': read('weight_hh', i),
      'bias': bias,
    }
  return params


def highway_lstms(module, gradients=False):
  """Returns a `StackedAlternatingLstm` as our AlternatingHighwayLstm.

  Their gates have two biases, ours one, to whose forget gate 1 is added at run
  time.
  """
  params = {}
  for i in range(module.num_layers):
    layer = getattr(module, f'layer_{i}')
    F = layer.hidden_size
    kernel, recurrent = (
      _read(part.weight, gradients).T
      for part in (layer.input_linearity, layer.state_linearity)
    )
    bias = _read(layer.state_linearity.bias, gradients).reshape(-1, F)
    if not gradients:
      bias[1] -= 1
    if layer.input_linearity.bias is not None:
      of_input = _read(layer.input_linearity.bias, gradients).reshape(-1, F)
      if not gradients:
        of_input[: len(bias)] += bias
      bias = of_input
    params[f'layer_{i}'] = {
      'input_kernel': kernel.reshape(len(kernel), -1, F),
      'recurrent_kernel': recurrent.reshape(F, -1, F),
      'bias': bias,
    }
  return params


def resolver(module, gradients=False):
  """Returns a `CoreferenceResolver` as our EndToEndCoref 'allennlp'."""

  def scorer(layers, score):
    first, second = layers._module._linear_layers
    return {
      'hidden_0': linear(first, gradients),
      'hidden_1': linear(second, gradients),
      'score': linear(score._module, gradients),
    }

  widths = module._endpoint_span_extractor._span_width_embedding.weight
  head = module._attentive_span_extractor._global_attention._module
  return {
    'encoder': bilstm(module._context_layer._module, gradients),
    'head': linear(head, gradients),
    'widths': _read(widths, gradients),
    'distances': _read(module._distance_embedding.weight, gradients),
    'mention_scorer': scorer(*module._mention_pruner._scorer),
    'pair_scorer': scorer(
      module._antecedent_feedforward, module._antecedent_scorer
    ),
  }


def bidaf(module, gradients=False):
  """Returns a `BidirectionalAttentionFlow` as our Bidaf."""

  def highway(layer):
    found = linear(layer, gradients)
    kernel, bias = found['kernel'], found['bias']
    D = len(kernel)
    return {
      'linear': {'kernel': kernel.reshape(D, 2, D), 'bias': bias.reshape(2, D)}
    }

  first, second = module._highway_layer._module._layers
  similarity = module._matrix_attention._similarity_function
  return {
    'highway_0': highway(first),
    'highway_1': highway(second),
    'encoder': bilstm(module._phrase_layer._module, gradients),
    'similarity': {
      'kernel': _read(similarity._weight_vector, gradients).reshape(3, -1),
      'bias': _read(similarity._bias, gradients)[0],
    },
    'model': bilstm(module._modeling_layer._module, gradients),
    'end': bilstm(module._span_end_encoder._module, gradients),
    'first': linear(module._span_start_predictor._module, gradients),
    'last': linear(module._span_end_predictor._module, gradients),
  }


def words(module, gradients=False):
  """Returns embedded words, their characters and mixes, as our Reader's."""
  params = {}
  if 'rows' in module.parts:
    params['words'] = {'table': _read(module.parts['rows'].weight, gradients)}
  if 'characters' in module.parts:
    encoder = module.parts['characters']
    convolution = encoder._encoder._module.conv_layer_0
    table = _read(encoder._embedding._module.weight, gradients)
    params['characters'] = {
      'characters': table[1:],
      'filters_0': {
        'kernel': _read(convolution.weight, gradients).transpose(2, 1, 0),
        'bias': _read(convolution.bias, gradients),
      },
    }
  for place, mix in module.mixes.items():
    weights = [_read(each, gradients) for each in mix.scalar_parameters]
    params[place] = {
      'mix': {
        'mix_weights': np.concatenate(weights),
        'mix_scale': _read(mix.gamma, gradients)[0],
      }
    }
  return params
