"""The original ELMo of PyTorch's own parts, which is timed beside ours.

`step` and `embedding` make programs as `train.benches.programs` does. Written
for speed on a CPU: of two ways to write a computation, the one that ran faster
there (PyTorch 2.13) stands here. `nn.LSTM` has two biases where the release has
one, and no clips: it computes a little less.

Shapes: K towers, N words, C characters of a word, B batch, T position,
P projection, S samples, V words of the softmax.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from configs import variants
from data.vocabulary import characters
from models import char_cnn

# How the release trains (bilm-tf, training.py and bin/train_elmo.py).
LEARNING_RATE = 0.2
INITIAL_ACCUMULATOR = 1.0
CLIP_NORM = 10.0
DROPOUT_RATE = 0.1
FORGET_BIAS = 1.0
GATE_BIAS = -2.0

NUM_TOWERS = 2  # forward, backward


def make_elmo(sizes: dict[str, Any]) -> Any:
  """Returns the biLM without its softmax, parameters random.

  Args:
    sizes: of `configs.variants.ELMO`.

  Returns:
    A ModuleDict: the table 'characters', the matrices of 'filters' and
    'highways', 'projection', and in 'towers' each tower's LSTM layers.
  """
  from torch import nn

  F, P, E = sizes['lstm_dim'], sizes['projection_dim'], sizes['char_embed_dim']
  total = sum(count for _, count in sizes['filters'])
  highways = [nn.Linear(total, 2 * total) for _ in range(sizes['num_highway'])]
  for highway in highways:
    nn.init.constant_(highway.bias[total:], GATE_BIAS)
  towers = [
    [nn.LSTM(P, F, proj_size=P) for _ in range(sizes['num_layers'])]
    for _ in range(NUM_TOWERS)
  ]
  for lstm in (lstm for tower in towers for lstm in tower):
    nn.init.constant_(lstm.bias_ih_l0[F : 2 * F], FORGET_BIAS)
  return nn.ModuleDict(
    {
      'characters': nn.Embedding(char_cnn.NUM_CHARACTERS, E),
      # As matrices on windows: faster than nn.Conv1d.
      'filters': nn.ModuleList(
        nn.Linear(width * E, count) for width, count in sizes['filters']
      ),
      'highways': nn.ModuleList(highways),
      'projection': nn.Linear(total, P),
      'towers': nn.ModuleList(nn.ModuleList(tower) for tower in towers),
    }
  )


def encode(elmo: Any, ids_NC: Any) -> Any:
  """Returns the vectors of words [N, P] for int [N, C] characters."""
  import torch

  E = elmo['characters'].embedding_dim
  embedded = elmo['characters'](ids_NC).flatten(1)

  def largest(filters: Any) -> Any:
    answers = filters(embedded.unfold(1, filters.in_features, E))
    # The gradient of `max`, which keeps the places of the largest answers, is
    # faster than that of `amax`; without gradients `amax` is.
    if torch.is_grad_enabled():
      return answers.max(dim=1).values
    return answers.amax(dim=1)

  x = torch.cat([largest(filters) for filters in elmo['filters']], dim=1).relu()
  for highway in elmo['highways']:
    transformed, gate = highway(x).chunk(2, dim=1)
    x = torch.lerp(x, transformed.relu(), gate.sigmoid())
  return elmo['projection'](x)


def make_softmax(num_words: int, projection_dim: int) -> Any:
  """Returns a ModuleDict of 'kernel' [V, P] and 'bias' [V, 1]."""
  from torch import nn

  softmax = nn.ModuleDict(
    {
      'kernel': nn.Embedding(num_words, projection_dim, sparse=True),
      'bias': nn.Embedding(num_words, 1, sparse=True),
    }
  )
  nn.init.normal_(softmax['kernel'].weight, std=1 / math.sqrt(projection_dim))
  nn.init.zeros_(softmax['bias'].weight)
  return softmax


def draw_words(num_words: int, count: int) -> Any:
  """Draws words with replacement, log-uniformly: the frequent ones are first.

  Returns:
    int64 [count].
  """
  import torch

  words = torch.rand(count).mul(math.log(num_words + 1)).exp().long() - 1
  return words.clamp(max=num_words - 1)  # where the exponential rounds up


def sampled_losses(
  softmax: Any, hidden_NP: Any, targets_N: Any, samples_S: Any
) -> Any:
  """Returns the loss of each word against its own sampled softmax.

  As ours: each score is less by the log-probability that its word is among the
  samples, where it counts once; samples that are a row's target do not count in
  that row.

  Args:
    softmax: of `make_softmax`.
    hidden_NP: the hidden states that predict the words.
    targets_N: int64, the words.
    samples_S: int64, drawn by `draw_words`.

  Returns:
    float [N].
  """
  import torch

  num_words, num_samples = softmax['bias'].num_embeddings, len(samples_S)
  samples_S = samples_S.unique()
  words = torch.cat([targets_N, samples_S])
  kernel, bias = softmax['kernel'](words), softmax['bias'](words)[:, 0]
  # log((w + 2) / (w + 1)) / log(V + 1) is the probability of word w.
  share = torch.log1p(1 / (words + 1.0)) / math.log(num_words + 1)
  bias = bias - torch.log(-torch.expm1(num_samples * torch.log1p(-share)))
  N = len(targets_N)
  target_N1 = (hidden_NP * kernel[:N]).sum(-1, keepdim=True) + bias[:N, None]
  sampled_NS = torch.addmm(bias[N:], hidden_NP, kernel[N:].T)
  hits_NS = targets_N[:, None] == samples_S
  sampled_NS = sampled_NS.masked_fill(hits_NS, -math.inf)
  logits = torch.cat([target_N1, sampled_NS], dim=1)
  return logits.logsumexp(dim=1) - target_N1[:, 0]


def clip_and_step(optimizers: Sequence[Any], limit: float) -> None:
  """Steps by gradients, sparse or not, scaled to a norm of at most `limit`."""
  import torch

  values = []
  for optimizer in optimizers:
    for parameter in optimizer.param_groups[0]['params']:
      if parameter.grad.is_sparse:
        # One gradient a row: those of several words are summed before the norm
        # is taken.
        parameter.grad = parameter.grad.coalesce()
        values.append(parameter.grad.values())
      else:
        values.append(parameter.grad)
  norm = torch.nn.utils.get_total_norm(values)
  scale = (limit / norm).clamp(max=1.0)
  for value in values:
    value.mul_(scale)
  for optimizer in optimizers:
    optimizer.step()


def read_stream(
  tower: Any, x_TBP: Any, states: Sequence[Any] | None
) -> tuple[Any, list[Any]]:
  """Reads T words of a text that began before, with dropout.

  Args:
    tower: the LSTM layers.
    x_TBP: vectors of the words.
    states: of each layer after the words before; None at the beginning.

  Returns:
    The last layer's output [T, B, P], and the states after the words, through
    which no gradient flows.
  """
  from torch.nn import functional

  after = []
  for i, lstm in enumerate(tower):
    x_TBP = functional.dropout(x_TBP, DROPOUT_RATE)
    y_TBP, state = lstm(x_TBP, states and states[i])
    after.append(tuple(part.detach() for part in state))
    x_TBP = x_TBP + y_TBP if i else y_TBP
  return x_TBP, after


def step(
  *,
  batch: int,
  length: int,
  num_words: int,
  num_samples: int,
  size: str = 'elmo',
) -> tuple[Callable[[], float], float]:
  """Makes a training step, which returns its loss; its FLOPs are not counted.

  As released: each tower reads a text of its own and continues where the step
  before ended; sampled softmax, Adagrad, global-norm clip. The gradients of the
  softmax's tables are sparse: dense ones take 1.6 times as long from the loss
  to the update (100,000 words, 8,192 samples).

  Args:
    batch: B, rows that each tower reads.
    length: T, words of a row.
    num_words: V.
    num_samples: S, drawn anew for each tower and step.
    size: of `configs.variants.ELMO`.
  """
  import torch
  from torch.nn import functional

  torch.set_num_threads(os.cpu_count())
  torch.manual_seed(0)
  torch.sparse.check_sparse_tensor_invariants.disable()  # else it warns
  sizes = variants.ELMO[size]
  elmo = make_elmo(sizes)
  softmax = make_softmax(num_words, sizes['projection_dim'])
  options = dict(
    lr=LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR
  )
  optimizers = [
    torch.optim.Adagrad(elmo.parameters(), fused=True, **options),
    torch.optim.Adagrad(softmax.parameters(), **options),
  ]
  shape = (NUM_TOWERS, length, batch)
  ids = torch.randint(
    char_cnn.NUM_CHARACTERS, (*shape, characters.MAX_CHARACTERS)
  )
  targets = draw_words(num_words, math.prod(shape)).view(NUM_TOWERS, -1)
  states: list[Any] = [None] * NUM_TOWERS

  def run() -> float:
    for optimizer in optimizers:
      optimizer.zero_grad(set_to_none=True)
    x_KTBP = encode(elmo, ids.flatten(0, 2)).view(*shape, -1)
    losses = []
    for i, tower in enumerate(elmo['towers']):
      top_TBP, states[i] = read_stream(tower, x_KTBP[i], states[i])
      hidden_NP = functional.dropout(top_TBP, DROPOUT_RATE).flatten(0, 1)
      samples_S = draw_words(num_words, num_samples)
      losses.append(
        sampled_losses(softmax, hidden_NP, targets[i], samples_S).mean()
      )
    loss = sum(losses) / NUM_TOWERS
    (loss * length).backward()  # as bilm-tf scales it
    clip_and_step(optimizers, CLIP_NORM)
    return loss.item()

  return run, 0.0


def embed_sentences(
  elmo: Any, sentences: Sequence[Sequence[str]]
) -> list[np.ndarray]:
  """Returns every layer's vectors of the words of a batch of sentences.

  Each sentence is read alone, between <S> and </S>, which are left out of the
  result. In packed sequences, so that no layer computes padding.

  Args:
    elmo: of `make_elmo`.
    sentences: words of each.

  Returns:
    float32 [L + 1, T, 2 P] of each sentence: the words' own vectors twice, then
    each layer's, forward then backward.
  """
  import torch

  begin, end = characters.SENTENCE_BEGIN, characters.SENTENCE_END
  framed = [(begin, *sentence, end) for sentence in sentences]
  ids, _ = characters.encode_words([word for words in framed for word in words])
  with torch.no_grad():
    words = encode(elmo, torch.from_numpy(ids).int())
    texts = words.split([len(sentence) for sentence in framed])
    turned = [x_TP.flip(0) for x_TP in texts]
    forward, backward = elmo['towers']
    both = [(texts, turned)]
    both += zip(
      _read_packed(forward, texts), _read_packed(backward, turned), strict=True
    )
    layers = [
      [
        torch.cat([x_TP, y_TP.flip(0)], dim=1)[1:-1]
        for x_TP, y_TP in zip(*pair, strict=True)
      ]
      for pair in both
    ]
    return [
      torch.stack(vectors).numpy() for vectors in zip(*layers, strict=True)
    ]


def _read_packed(tower: Any, texts: Sequence[Any]) -> list[list[Any]]:
  """Returns each layer's output [T, P] of each text [T, P]."""
  from torch.nn.utils import rnn

  packed = rnn.pack_sequence(texts, enforce_sorted=False)
  outputs = []
  for i, lstm in enumerate(tower):
    y, _ = lstm(packed)
    packed = y._replace(data=y.data + packed.data) if i else y
    outputs.append(rnn.unpack_sequence(packed))
  return outputs


def embedding(
  *,
  sentences: Sequence[Sequence[str]],
  sentences_at_once: int = 64,
  size: str = 'elmo',
) -> tuple[Callable[[], list[np.ndarray]], float]:
  """Makes an embedding of sentences, as `embed_sentences` returns them.

  In batches in the order given, as the released program and AllenNLP do, but
  each sentence from an empty state: the result does not depend on its batch.

  Args:
    sentences: words of each.
    sentences_at_once: sentences of a batch; by default as in AllenNLP.
    size: of `configs.variants.ELMO`.
  """
  import torch

  torch.set_num_threads(os.cpu_count())
  torch.manual_seed(0)
  elmo = make_elmo(variants.ELMO[size])

  def run() -> list[np.ndarray]:
    vectors: list[np.ndarray] = []
    for start in range(0, len(sentences), sentences_at_once):
      batch = sentences[start : start + sentences_at_once]
      vectors += embed_sentences(elmo, batch)
    return vectors

  return run, 0.0
