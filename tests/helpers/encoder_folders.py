"""Vocabularies of bytes with an encoder's symbols, as published folders."""

import functools
import json

import tokenizers
import transformers
from tokenizers import (
  AddedToken,
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
  trainers,
)

TEXT = (
  'The quick brown fox jumps over the lazy dog, and the dog sleeps on.',
  "It's twenty-five years old: the café in Paris isn't far from the river.",
  'the cat sat on the mat while the other cats were sitting on other mats',
  'A function of two strings returns the longer of the two strings, or None.',
)
SPACES = tuple(' ' * count for count in range(24, 1, -1))


@functools.cache
def trained(size: int = 400) -> tuple[dict[str, int], tuple]:
  """Returns pieces with ids from 0 on, and merges, of a byte-level BPE."""
  found = tokenizers.Tokenizer(models.BPE())
  found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  trainer = trainers.BpeTrainer(
    vocab_size=size,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  found.train_from_iterator(TEXT * 3, trainer)
  merges = json.loads(found.to_str())['model']
  return found.get_vocab(), tuple(map(tuple, merges['merges']))


def modernbert(folder, vocab=None, merges=None):
  """Writes a folder with the layout of answerdotai/ModernBERT-base.

  Markers stand inside and behind the vocabulary, then runs of spaces, the
  symbols and unused tokens; all is in tokenizer.json.
  """
  if vocab is None:
    vocab, merges = trained()
  order = sorted(vocab, key=vocab.__getitem__)
  pieces = ['|||IP_ADDRESS|||', '<|padding|>', *order]
  found = tokenizers.Tokenizer(
    models.BPE({piece: i for i, piece in enumerate(pieces)}, list(merges))
  )
  found.normalizer = normalizers.NFC()
  found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  found.decoder = decoders.ByteLevel()
  plain = functools.partial(AddedToken, normalized=True)
  found.add_tokens([plain('|||IP_ADDRESS|||'), *map(plain, SPACES)])
  found.add_tokens([plain('|||EMAIL_ADDRESS|||')])
  found.add_special_tokens(
    [
      '<|padding|>',
      '<|endoftext|>',
      '[UNK]',
      '[CLS]',
      '[SEP]',
      '[PAD]',
      AddedToken('[MASK]', lstrip=True),
    ]
  )
  found.add_tokens([plain(f'[unused{i}]') for i in range(3)])
  found.post_processor = processors.TemplateProcessing(
    single='[CLS] $A [SEP]',
    pair='[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1',
    special_tokens=[(s, found.token_to_id(s)) for s in ('[CLS]', '[SEP]')],
  )
  theirs = transformers.PreTrainedTokenizerFast(
    tokenizer_object=found,
    model_max_length=64,
    model_input_names=['input_ids', 'attention_mask'],
    **{f'{s.lower()}_token': f'[{s}]' for s in 'UNK CLS SEP PAD MASK'.split()},
  )
  theirs.save_pretrained(folder)
  return theirs


def roberta(folder, vocab=None, merges=None):
  """Writes a folder with the layout of FacebookAI/roberta-base."""
  if vocab is None:
    vocab, merges = trained()
  order = sorted(vocab, key=vocab.__getitem__)
  pieces = ['<s>', '<pad>', '</s>', '<unk>', *order, '<mask>']
  theirs = transformers.RobertaTokenizer(
    vocab={piece: i for i, piece in enumerate(pieces)},
    merges=list(merges),
    mask_token=AddedToken('<mask>', lstrip=True, special=True),
    model_max_length=64,
  )
  theirs.save_pretrained(folder)
  ids = {piece: i for i, piece in enumerate(pieces)}
  (folder / 'vocab.json').write_text(json.dumps(ids, ensure_ascii=False))
  lines = ['#version: 0.2', *map(' '.join, merges), '']
  (folder / 'merges.txt').write_text('\n'.join(lines))
  return theirs


def write_model(folder, kind, head='ForMaskedLM', **options):
  """Writes a small drawn model of transformers with its vocabulary.

  Returns the model and its tokenizer.
  """
  import torch

  tokenizer = MAKERS[kind](folder)
  name = CLASSES[kind]
  config = getattr(transformers, f'{name}Config')(
    vocab_size=len(tokenizer),
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    **{
      f'{symbol}_token_id': getattr(tokenizer, f'{symbol}_token_id')
      for symbol in ('pad', 'cls', 'sep')
    },
    bos_token_id=tokenizer.cls_token_id,
    eos_token_id=tokenizer.sep_token_id,
    **OPTIONS[kind] | options,
  )
  torch.manual_seed(0)
  model = getattr(transformers, name + head)(config).eval()
  with torch.no_grad():
    for leaf in model.parameters():
      leaf += 0.1 * torch.randn(leaf.shape)
  model.save_pretrained(folder)
  return model, tokenizer


MAKERS = {'modernbert': modernbert, 'roberta': roberta}
CLASSES = {'modernbert': 'ModernBert', 'roberta': 'Roberta'}
OPTIONS = {
  'modernbert': {
    'max_position_embeddings': 64,
    'local_attention': 8,
    'attn_implementation': 'eager',
  },
  'roberta': {
    'max_position_embeddings': 66,
    'type_vocab_size': 1,
    'layer_norm_eps': 1e-5,
  },
}
