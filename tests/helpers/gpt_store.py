"""Token stores of GPT's and GPT-2's kind, and configs of runs of seconds."""

import pydoc_data.topics

from data.store import build
from train.run import settings

TOKENIZERS = {'gpt': 'train:bpe:500', 'gpt2': 'train:bytebpe:500'}
BREAK = '== .*'


def small_stores(folder):
  """Returns the folders of stores of a part of the manual, by model."""
  topics = sorted(pydoc_data.topics.topics.items())[:60]
  text = folder / 'story.txt'
  text.write_text('\n'.join(f'== {name}\n{text}\n' for name, text in topics))
  for name, tokenizer in TOKENIZERS.items():
    build.build_store(
      str(text),
      tokenizer,
      folder / name,
      document_break=BREAK,
      progress=False,
    )
  return {name: folder / name for name in TOKENIZERS}


def small_gpt_config(name, stores, **overrides):
  """Returns the config of a run of 12 steps."""
  return settings.with_overrides(
    settings.load_config('gpt_tiny'),
    {
      'model.name': name,
      'model.scan_layers': True,
      'model.embed_dim': 32,
      'model.num_heads': 2,
      'model.mlp_dim': 128,
      'model.max_length': 64,
      'model.dropout_rate': 0.1,
      'model.attention_dropout_rate': 0.1,
      'data.folder': str(stores[name]),
      'data.loader': 'plain',
      'train.phases': ((12, 32, 16, 'continue'),),
      'train.log_every': 4,
      'train.eval_every': 6,
      'train.checkpoint_every': 4,
      'train.peak_tflops': 0.1,
      'optim.learning_rate': 1e-2,
      'optim.warmup_steps': 2,
      'eval.global_batch': 16,
      'eval.max_windows': 32,
      **overrides,
    },
  )
