"""Writes a tokenizer as `transformers` reads it, beside exported weights."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import tokenizers
from etils import epath
from tokenizers import AddedToken, decoders, processors

from data import scratch
from data.vocabulary import (
  bpe,
  bpe_files,
  byte_bpe,
  encoder_byte_bpe,
  tokenizer_json,
  wordpiece,
)
from data.vocabulary.encoder_tokenizer import EncoderTokenizer
from data.vocabulary.tokenizer import Tokenizer

VOCAB_FILE = 'vocab.json'
MERGES_FILE = 'merges.txt'


# (tokenizer, folder, token types or not) -> tokenizer.json, and the content of
# tokenizer_config.json.
_Writer = Callable[
  [Any, epath.Path, bool], tuple[tokenizers.Tokenizer, dict[str, Any]]
]


def export(
  tokenizer: Tokenizer,
  folder: str | pathlib.Path | epath.Path,
  *,
  max_length: int,
  token_types: bool = True,
) -> None:
  """Writes files for `AutoTokenizer.from_pretrained` of `transformers`.

  It gives the ids of `encode_batch`, an encoder's with [CLS] and [SEP] round
  them; but it takes the symbols ([MASK], <|endoftext|>, <unk>) in a text for
  symbols, and finds GPT's words as `bpe.BASIC`. The three symbols of GPT that
  no text gives are left out, as in published weights. `tokenization.load` reads
  the folder, too, with the same fingerprint. `max_length` becomes
  `model_max_length`. Without `token_types` an encoder is given none.
  """
  writers: dict[type[Tokenizer], _Writer] = {
    wordpiece.WordPiece: _wordpiece,
    bpe.BPE: _bpe,
    byte_bpe.ByteBPE: _byte_bpe,
    encoder_byte_bpe.EncoderByteBPE: _encoder_byte_bpe,
  }
  if type(tokenizer) not in writers:
    raise ValueError(
      f'{tokenizer.description}: transformers has no tokenizer like it, only '
      "BERT's, GPT's, GPT-2's, ModernBERT's and RoBERTa's; keep the folder"
      ' of the run instead'
    )
  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  # The folder's own settings would override the files written here.
  (folder / bpe_files.SETTINGS_FILE).unlink(missing_ok=True)
  whole, config = writers[type(tokenizer)](tokenizer, folder, token_types)
  config |= {'model_max_length': max_length}
  scratch.write_bytes(
    folder / tokenizer_json.TOKENIZER_FILE,
    whole.to_str(pretty=True).encode(),
  )
  scratch.write_bytes(
    folder / tokenizer_json.CONFIG_FILE,
    (json.dumps(config, indent=2) + '\n').encode(),
  )


def _wordpiece(
  tokenizer: wordpiece.WordPiece, folder: epath.Path, token_types: bool
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
  tokenizer.save_vocabulary(folder)
  whole = _copy(tokenizer.tokenizer)
  whole.add_special_tokens(list(wordpiece.SPECIALS))
  whole.post_processor = _frame(tokenizer, token_types)
  # BertTokenizer has its own longest word, the general class has none.
  as_theirs = tokenizer.max_word_chars == 100
  return whole, {
    'tokenizer_class': (
      'BertTokenizer' if as_theirs else 'PreTrainedTokenizerFast'
    ),
    **_of_encoder(tokenizer, token_types),
    'do_lower_case': not tokenizer.cased,
    'strip_accents': tokenizer.strip_accents,
    'tokenize_chinese_chars': True,
  }


def _frame(
  tokenizer: EncoderTokenizer, token_types: bool
) -> processors.TemplateProcessing:
  """Returns what sets the symbols round a text or two."""
  cls, sep = (tokenizer.pieces[i] for i in (tokenizer.cls_id, tokenizer.sep_id))
  second, between = int(token_types), f'{sep}:0 ' * tokenizer.separators
  return processors.TemplateProcessing(
    single=f'{cls}:0 $A:0 {sep}:0',
    pair=f'{cls}:0 $A:0 {between}$B:{second} {sep}:{second}',
    special_tokens=[(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)],
  )


def _of_encoder(
  tokenizer: EncoderTokenizer, token_types: bool
) -> dict[str, Any]:
  """Returns the keys of tokenizer_config.json of all encoders."""
  names = ('pad', 'unk', 'cls', 'sep', 'mask')
  ids = (getattr(tokenizer, f'{name}_id') for name in names)
  types = ['token_type_ids'] if token_types else []
  return {
    'model_input_names': ['input_ids', *types, 'attention_mask'],
    **{
      f'{name}_token': tokenizer.pieces[i]
      for name, i in zip(names, ids, strict=True)
    },
  }


def _encoder_byte_bpe(
  tokenizer: encoder_byte_bpe.EncoderByteBPE,
  folder: epath.Path,
  token_types: bool,
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
  bpe_files.write(
    folder / VOCAB_FILE,
    folder / MERGES_FILE,
    tokenizer.model_pieces(),
    tokenizer.merges,
  )
  whole = _copy(tokenizer.tokenizer)
  whole.add_special_tokens(
    [
      AddedToken(symbol, lstrip=symbol == tokenizer.mask, normalized=False)
      for symbol in tokenizer_json.SYMBOLS[tokenizer.kind]
    ]
  )
  whole.post_processor = _frame(tokenizer, token_types)
  config = {
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'add_prefix_space': tokenizer.prefix_space,
    **_of_encoder(tokenizer, token_types),
  }
  if tokenizer.kind == 'roberta':
    config |= {
      'bos_token': config['cls_token'],
      'eos_token': config['sep_token'],
    }
    if not token_types:  # which the class has not
      config['tokenizer_class'] = 'RobertaTokenizer'
  return whole, config


def _bpe(
  tokenizer: bpe.BPE, folder: epath.Path, token_types: bool
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
  del token_types
  pieces = tokenizer.pieces[: -len(bpe.SPECIALS)]
  bpe_files.write(
    folder / VOCAB_FILE, folder / MERGES_FILE, pieces, tokenizer.merges
  )
  # No other file says how words are found.
  settings = {'type': 'bpe', 'words': tokenizer.words}
  scratch.write_bytes(
    folder / bpe_files.SETTINGS_FILE, json.dumps(settings).encode()
  )
  whole = _copy(tokenizer.whole)
  whole.decoder = decoders.BPEDecoder(suffix=bpe.END_OF_WORD)
  whole.add_special_tokens([bpe.UNKNOWN])
  return whole, {
    'tokenizer_class': 'OpenAIGPTTokenizer',
    'unk_token': bpe.UNKNOWN,
  }


def _byte_bpe(
  tokenizer: byte_bpe.ByteBPE, folder: epath.Path, token_types: bool
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
  del token_types
  bpe_files.write(
    folder / VOCAB_FILE,
    folder / MERGES_FILE,
    tokenizer.model_pieces(),
    tokenizer.merges,
  )
  whole = _copy(tokenizer.tokenizer)
  whole.add_special_tokens([byte_bpe.END_OF_TEXT])
  return whole, {
    'tokenizer_class': 'GPT2Tokenizer',
    'add_prefix_space': False,
    **dict.fromkeys(
      ('bos_token', 'eos_token', 'unk_token'), byte_bpe.END_OF_TEXT
    ),
  }


def _copy(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
  return tokenizers.Tokenizer.from_str(tokenizer.to_str())
