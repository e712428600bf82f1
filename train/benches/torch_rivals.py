"""Hugging Face's steps and decoding, and bare products of PyTorch."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from train.benches import ours


def their_step(
  size: str,
  *,
  batch: int,
  length: int,
  vocab_size: int,
  dropout: float,
  accelerator: bool = False,
) -> tuple[Callable[[], None], float]:
  """Returns what trains a step of Hugging Face's BERT on PyTorch; no FLOPs."""
  import torch
  import transformers

  from configs import variants

  sizes = variants.BERT[size]
  config = transformers.BertConfig(
    vocab_size=vocab_size,
    num_hidden_layers=sizes['num_layers'],
    hidden_size=sizes['embed_dim'],
    num_attention_heads=sizes['num_heads'],
    intermediate_size=sizes['mlp_dim'],
    hidden_dropout_prob=dropout,
    attention_probs_dropout_prob=dropout,
    attn_implementation='sdpa',
  )
  torch.set_num_threads(os.cpu_count())
  where = 'cuda' if accelerator else 'cpu'
  torch.manual_seed(0)
  model = transformers.BertForPreTraining(config).to(where).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-4, fused=accelerator or None
  )
  if accelerator:
    torch.set_float32_matmul_precision('high')
    model = torch.compile(model)
  rng = np.random.default_rng(0)
  tokens = torch.tensor(rng.integers(5, vocab_size, (batch, length)))
  labels = torch.where(torch.rand(batch, length) < 0.15, tokens, -100)
  inputs = {
    'input_ids': tokens,
    'attention_mask': torch.ones_like(tokens),
    'token_type_ids': torch.zeros_like(tokens),
    'labels': labels,
    'next_sentence_label': torch.randint(0, 2, (batch,)),
  }
  inputs = {name: value.to(where) for name, value in inputs.items()}

  def run() -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(where, torch.bfloat16, enabled=accelerator):
      loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


def _their_gpt2(size: str, dropout: float, where: str) -> Any:
  """Returns Hugging Face's GPT-2 of a size, its parameters random."""
  import torch
  import transformers

  from configs import variants

  sizes = variants.GPT2[size]
  torch.set_num_threads(os.cpu_count())
  torch.manual_seed(0)
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


def their_gpt2_step(
  size: str,
  *,
  batch: int,
  length: int,
  dropout: float,
  accelerator: bool = False,
) -> tuple[Callable[[], None], float]:
  """Returns what trains a step of Hugging Face's GPT-2; no FLOPs."""
  import torch

  where = 'cuda' if accelerator else 'cpu'
  model = _their_gpt2(size, dropout, where).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), lr=1e-4, fused=accelerator or None
  )
  if accelerator:
    torch.set_float32_matmul_precision('high')
    model = torch.compile(model)
  tokens = torch.randint(0, 50_257, (batch, length), device=where)

  def run() -> None:
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(where, torch.bfloat16, enabled=accelerator):
      loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    if accelerator:
      torch.cuda.synchronize()

  return run, 0.0


def their_decoding(
  size: str, *, batch: int, new_tokens: int, accelerator: bool = False
) -> tuple[Callable[[], None], float]:
  """Returns what decodes greedily by Hugging Face's GPT-2; no FLOPs."""
  import torch

  where = 'cuda' if accelerator else 'cpu'
  model = _their_gpt2(size, 0.0, where).eval()
  options = {}
  if accelerator:
    model = model.to(torch.bfloat16)
    # Compiled by itself where the cache is static.
    options['cache_implementation'] = 'static'
  tokens = torch.randint(0, 50_257, (batch, ours.PROMPT_TOKENS), device=where)

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


def torch_products() -> tuple[Callable[[], None], float]:
  """Returns what multiplies matrices by PyTorch, and its FLOPs."""
  import torch

  torch.set_num_threads(os.cpu_count())
  a, b = (torch.ones(shape) for shape in ours.PRODUCT)

  def run() -> None:
    for _ in range(ours.PRODUCTS):
      torch.matmul(a, b)

  return run, ours.PRODUCTS * ours.PRODUCT_FLOPS
