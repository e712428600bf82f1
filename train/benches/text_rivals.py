"""What our vectors of sentences are timed against: Hugging Face's BERT."""

import os
from collections.abc import Callable, Sequence

import numpy as np

from train.vectors.length_batches import batches_by_length
from train.vectors.text_vectors import default_batch_tokens

THEIR_BATCH = 32  # of the loop that many write


def our_embedding(
  *, weights: str, sentences: Sequence[str], dtype: str
) -> tuple[Callable[[], list[np.ndarray]], float]:
  """Returns what embeds all sentences by ours, and no FLOPs (0).

  Args:
    weights: a workdir, or a folder of published weights.
    sentences: texts.
    dtype: of the products.
  """
  import jax.numpy as jnp

  from train.host import device
  from train.params import trained
  from train.vectors import text_plan, text_vectors

  device.enable_compilation_cache()
  found = trained.load(weights, expected=trained.TRANSFORMERS)
  found = found._replace(model=found.model.clone(dtype=jnp.dtype(dtype)))
  request = text_plan.Request()

  def run() -> list[np.ndarray]:
    return [
      vectors.array
      for vectors in text_vectors.embed_texts(found, sentences, request)
    ]

  return run, 0.0


def their_embedding(
  *,
  weights: str,
  sentences: Sequence[str],
  equal_padding: bool,
  accelerator: bool = False,
) -> tuple[Callable[[], np.ndarray], float]:
  """Returns what embeds all sentences by Hugging Face's BERT; no FLOPs.

  Means over all tokens, in float32 on a CPU, bfloat16 on an accelerator.

  Args:
    weights: a folder of published weights, with a vocabulary.
    sentences: texts.
    equal_padding: in our batches; else in batches of 32 in the order given,
      each padded to its longest.
    accelerator: on the first one.
  """
  import torch
  import transformers

  torch.set_num_threads(os.cpu_count())
  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  where = 'cuda' if accelerator else 'cpu'
  dtype = torch.bfloat16 if accelerator else torch.float32
  tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
  model = transformers.AutoModel.from_pretrained(
    weights, attn_implementation='sdpa', dtype=dtype
  )
  model = model.to(where).eval()
  batches = _batches(
    tokenizer(list(sentences))['input_ids'],
    default_batch_tokens('gpu' if accelerator else 'cpu')
    if equal_padding
    else None,
  )

  def run() -> np.ndarray:
    pooled: list[np.ndarray | None] = [None] * len(sentences)
    with torch.inference_mode():
      for numbers, length in batches:
        inputs = tokenizer(
          [sentences[number] for number in numbers],
          padding='max_length' if length else True,
          truncation=True,
          max_length=length or model.config.max_position_embeddings,
          return_tensors='pt',
        ).to(where)
        hidden = model(**inputs).last_hidden_state.float()
        mask = inputs['attention_mask'][..., None]
        means = (hidden * mask).sum(1) / mask.sum(1)
        for number, vector in zip(numbers, means.cpu().numpy(), strict=True):
          pooled[number] = vector
    return np.stack(pooled)

  return run, 0.0


def _batches(
  ids: Sequence[Sequence[int]], batch_tokens: int | None
) -> list[tuple[list[int], int]]:
  """Returns the numbers of each batch's sentences, and its length.

  Args:
    ids: of each sentence, framed.
    batch_tokens: of our batches; None: 32 sentences in their order, and the
      length is 0: that of the longest.
  """
  numbers = range(len(ids))
  if batch_tokens is None:
    return [
      ([*numbers[first : first + THEIR_BATCH]], 0)
      for first in range(0, len(ids), THEIR_BATCH)
    ]
  return [
    ([*batch.numbers], batch.length)
    for batch in batches_by_length(enumerate(ids), batch_tokens, added=0)
  ]
