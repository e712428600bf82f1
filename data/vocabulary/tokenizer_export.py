"""Writes a tokenizer as `transformers` reads it, beside exported weights."""

import json
import pathlib
from typing import Any

import tokenizers
from etils import epath
from tokenizers import decoders, processors

from data import scratch
from data.vocabulary import bpe, bpe_files, byte_bpe, tokenizer_json, wordpiece

VOCAB_FILE = 'vocab.json'
MERGES_FILE = 'merges.txt'


def export(
  tokenizer: wordpiece.WordPiece | bpe.BPE | byte_bpe.ByteBPE,
  folder: str | pathlib.Path | epath.Path,
  *,
  max_length: int,
) -> None:
  """Writes files for `AutoTokenizer.from_pretrained` of `transformers`.

  It gives the ids of `encode_batch`, BERT's with [CLS] and [SEP] round them;
  but it takes the symbols ([MASK], <|endoftext|>, <unk>) in a text for symbols,
  and finds GPT's words as `bpe.BASIC`. The three symbols of GPT that no text
  gives are left out, as in published weights. `tokenization.load` reads the
  folder, too, with the same fingerprint. `max_length` becomes
  `model_max_length`.
  """
  writers = {
    wordpiece.WordPiece: _wordpiece,
    bpe.BPE: _bpe,
    byte_bpe.ByteBPE: _byte_bpe,
  }
  if type(tokenizer) not in writers:
    raise ValueError(
      f'{tokenizer.description}: transformers has no tokenizer like it, only '
      "BERT's, GPT's and GPT-2's; keep the folder of the run instead"
    )
  folder = epath.Path(folder)
  folder.mkdir(parents=True, exist_ok=True)
  # The folder's own settings would override the files written here.
  (folder / bpe_files.SETTINGS_FILE).unlink(missing_ok=True)
  whole, config = writers[type(tokenizer)](tokenizer, folder)
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
  tokenizer: wordpiece.WordPiece, folder: epath.Path
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
  tokenizer.save_vocabulary(folder)
  whole = _copy(tokenizer.tokenizer)
  whole.add_special_tokens(list(wordpiece.SPECIALS))
  whole.post_processor = processors.TemplateProcessing(
    single='[CLS]:0 $A:0 [SEP]:0',
    pair='[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1',
    special_tokens=[('[CLS]', tokenizer.cls_id), ('[SEP]', tokenizer.sep_id)],
  )
  # BertTokenizer has its own longest word, the general class has none.
  as_theirs = tokenizer.max_word_chars == 100
  return whole, {
    'tokenizer_class': (
      'BertTokenizer' if as_theirs else 'PreTrainedTokenizerFast'
    ),
    'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'],
    'do_lower_case': not tokenizer.cased,
    'strip_accents': tokenizer.strip_accents,
    'tokenize_chinese_chars': True,
    **{f'{name[1:-1].lower()}_token': name for name in wordpiece.SPECIALS},
  }


def _bpe(
  tokenizer: bpe.BPE, folder: epath.Path
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
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
  tokenizer: byte_bpe.ByteBPE, folder: epath.Path
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
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
