"""Hugging Face's BERT and GPT-2 on PyTorch, and bare products of PyTorch.

Each function makes a program that is timed beside ours, see
`train.benches.programs`; nobody counts the FLOPs of Hugging Face's (0).
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from configs import variants
from train.benches import programs
from train.benches.timing import Program
from train.vectors.length_batches import batches_by_length, default_tokens

PLAIN_BATCH = 32  # sentences, of the loop that many people write


def make_model(size: str, dropout: float, where: str) -> Any:
  """Returns Hugging Face's model of a size, with random parameters.

  Args:
    size: a name in `configs.variants.BERT` or `GPT2`.
    dropout: all its rates.
    where: 'cpu' or 'cuda'.
  """
  import torch
  import transformers

  torch.set_num_threads(os.cpu_count())
  torch.manual_seed(0)
  if size in variants.BERT:
    sizes = variants.BERT[size]
    config = transformers.BertConfig(
      vocab_size=30_522,
      num_hidden_layers=sizes['num_layers'],
      hidden_size=sizes['embed_dim'],
      num_attention_heads=sizes['num_heads'],
      intermediate_size=sizes['mlp_dim'],
      hidden_dropout_prob=dropout,
      attention_probs_dropout_prob=dropout,
      attn_implementation='sdpa',
    )
    return transformers.BertForPreTraining(config).to(where)
  sizes = variants.GPT2[size]
  config = transformers.GPT2Config(
    n_layer=sizes['num_layers'],
    n_embd=sizes['embed_dim'],
    n_head=sizes['num_heads'],
    resid_pdrop=dropout,
    embd_pdrop=dropout,
    attn_pdrop=dropout,
    attn_implementation='sdpa',
  )
  return transformers.GPT2LMHeadModel(config).to(where)


def make_batch(size: str, batch: int, length: int) -> dict[str, Any]:
  """Returns random tokens, with labels at 15 % of a BERT's."""
  import torch

  if size in variants.GPT2:
    tokens = torch.randint(0, 50_257, (batch, length))
    return {'input_ids': tokens, 'labels': tokens}
  tokens = torch.randint(5, 30_522, (batch, length))
  chosen = torch.rand(batch, length) < 0.15
  return {
    'input_ids': tokens,
    'attention_mask': torch.ones_like(tokens),
    'token_type_ids': torch.zeros_like(tokens),
    'labels': torch.where(chosen, tokens, -100),
    'next_sentence_label': torch.randint(0, 2, (batch,)),
  }


def step(
  size: str, *, batch: int, length: int, dropout: float, accelerator: bool
) -> Program:
  """Makes a training step, as `programs.step` does."""
  import torch

  where = 'cuda' if accelerator else 'cpu'
  model = make_model(size, dropout, where).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-4, fused=accelerator or None
  )
  if accelerator:
    torch.set_float32_matmul_precision('high')
    model = torch.compile(model)
  inputs = {
    name: value.to(where)
    for name, value in make_batch(size, batch, length).items()
  }

  def run() -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(where, torch.bfloat16, enabled=accelerator):
      loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


def decoding(
  size: str, *, batch: int, new_tokens: int, accelerator: bool
) -> Program:
  """Makes greedy decoding, as `programs.decoding` does."""
  import torch

  where = 'cuda' if accelerator else 'cpu'
  model = make_model(size, 0.0, where).eval()
  options = {}
  if accelerator:
    model = model.to(torch.bfloat16)
    # Compiled by itself where the cache is static.
    options['cache_implementation'] = 'static'
  tokens = torch.randint(
    0, 50_257, (batch, programs.PROMPT_TOKENS), device=where
  )

  def run() -> None:
    model.generate(
      tokens,
      attention_mask=torch.ones_like(tokens),
      do_sample=False,
      max_new_tokens=new_tokens,
      min_new_tokens=new_tokens,
      pad_token_id=0,
      **options,
    )
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


def products() -> Program:
  """Makes matrix products, as `programs.products` does."""
  import torch

  torch.set_num_threads(os.cpu_count())
  a, b = (torch.ones(shape) for shape in programs.PRODUCT)

  def run() -> None:
    for _ in range(programs.NUM_PRODUCTS):
      torch.matmul(a, b)

  return run, programs.PRODUCTS_FLOPS


def embedding(
  *,
  weights: str,
  sentences: Sequence[str],
  equal_padding: bool,
  accelerator: bool,
) -> tuple[Callable[[], np.ndarray], float]:
  """Makes an embedding of sentences: means over all tokens of each.

  Args:
    weights: a folder of published weights, with a vocabulary.
    sentences: texts.
    equal_padding: in our batches; else in batches of 32 in the order given,
      each padded to its longest.
    accelerator: in bfloat16 on the first one, else in float32 on the CPU.
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
  if equal_padding:
    ids = tokenizer(list(sentences))['input_ids']
    tokens = default_tokens('gpu' if accelerator else 'cpu')
    batches = [
      (list(batch.numbers), batch.length)
      for batch in batches_by_length(
        enumerate(ids), tokens, added=0, most_padding=0
      )
    ]
  else:
    numbers = list(range(len(sentences)))
    batches = [
      (numbers[first : first + PLAIN_BATCH], None)
      for first in range(0, len(numbers), PLAIN_BATCH)
    ]

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
