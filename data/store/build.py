"""Builds a token store from text: streaming, on all cores, atomically."""

import os
import pathlib
import shlex
import sys
from collections.abc import Collection
from typing import Any

import numpy as np
from etils import epath

from data import scratch, storage
from data.store import arrays, corpus, folders, texts, units, vocabularies
from data.store import audit as audits
from data.text import documents, languages, sources
from data.vocabulary import tokenization


def build_store(
  source: str,
  tokenizer: str,
  out: str | os.PathLike,
  *,
  document_break: str | None = None,
  text_field: str = 'text',
  held_out: float = 0.05,
  language_exponent: float = languages.EXPONENT,
  unit_source: str = 'wordpiece',
  workers: int | None = None,
  overwrite: bool = False,
  progress: bool = True,
) -> dict[str, Any]:
  """Builds a store and returns its audit, at once if an equal store exists.

  Memory is bounded for any size of the input. The folder appears when
  everything is written; the next build removes the leftovers of a killed one.
  A store for gs://... is built in a temporary folder (TMPDIR) and uploaded,
  store.json last.

  `source`, `document_break` and `text_field` are as in `texts.open_source`.
  `tokenizer` is 'train:wordpiece:N[:cased]', 'train:bpe:N' (GPT's kind),
  'train:bytebpe:N' (GPT-2's), 'train:words:N[:spaces]' (ELMo's), or the path of
  a vocabulary; the text's other types are appended to a vocabulary of words.
  `held_out`, between 0 and 1, is the share of the tokens, in whole documents,
  never trained on. Of several languages, each has its held-out text, and a new
  vocabulary is trained on words counted with `language_exponent`, see
  `word_counts.count_texts`. `unit_source`, of `units.KINDS`, says where the
  bounds of units come from; those of WordPiece are not stored. `workers` is one
  for each core by default; `overwrite` replaces a store of something else,
  which is a ValueError without it.
  """
  if not 0 < held_out < 1:
    raise ValueError(
      f'held_out {held_out} must lie above 0 and below 1: a run without '
      'held-out text could not be evaluated'
    )
  if workers is not None and workers < 1:
    raise ValueError(f'workers {workers} must be at least 1')
  languages.check_exponent(language_exponent)
  units.check_kind(unit_source)
  remote = storage.is_remote(out)
  out = epath.Path(out) if remote else pathlib.Path(out).expanduser().absolute()
  training = tokenization.parse_training(tokenizer)
  loaded = None if training else tokenization.load(tokenizer)
  has_words = training.kind == 'words' if training else loaded.whole_words
  names = languages.split(source)
  if has_words and len(names) > 1:
    raise ValueError(
      f'tokenizer {tokenizer!r}: expected one of pieces for a source of'
      f' {len(names)} languages; whole words have one language'
    )
  text = texts.open_source(
    source, document_break=document_break, text_field=text_field
  )
  kinds = units.kinds(text, unit_source)
  units.check_tokenizer(kinds, tokenizer, training, loaded)
  asked = {
    'source': text.fingerprint,
    'document_break': text.document_break,
    'text_field': text_field,
    'tokenizer': loaded.fingerprint
    if loaded
    else tokenization.request_key(tokenizer),
    'held_out': held_out,
  } | _asked_options(names, tokenizer, language_exponent, unit_source)
  if audit := _standing_audit(out, asked, overwrite, language_exponent):
    return audit
  if remote:
    with scratch.temporary('store') as folder:
      local = folder / 'store'
      print(f'building {out} in {folder} first', file=sys.stderr)
      audit = build_store(
        source,
        tokenizer,
        local,
        document_break=document_break,
        text_field=text_field,
        held_out=held_out,
        language_exponent=language_exponent,
        unit_source=unit_source,
        workers=workers,
        progress=progress,
      )
      _upload(local, out)
    return audit
  with folders.exclusive(out):
    if audit := _standing_audit(out, asked, overwrite, language_exponent):
      return audit  # another process built it in the meantime
    with folders.new_folder(out) as folder:
      sample = None
      if has_words:
        loaded, sample = vocabularies.collect_words(
          text, training, loaded, progress
        )
      elif loaded is None:
        loaded, sample = vocabularies.train_pieces(
          text, training, language_exponent, unit_source, progress
        )
      loaded.save(folder)
      cores = workers or _num_cores()
      audit = arrays.write_arrays(
        text, loaded, folder, held_out, cores, progress, unit_source
      )
      audit['vocab_size_asked'] = trained_size(tokenizer)
      audit['vocabulary_text'] = sample
      if len(names) > 1:
        audits.weigh_languages(audit, language_exponent)
      if has_words:
        audit |= audits.describe_words(loaded, np.load(folder / 'counts.npy'))
      audit['warnings'] = audits.find_warnings(
        audit,
        # Nobody can choose where documents of ids end.
        pairs=isinstance(loaded, tokenization.EncoderTokenizer)
        and kinds != ['ids'],
        windows=not has_words and kinds != ['ids'],
      )
      meta = {
        'request': asked,
        'spec': {'source': source, 'tokenizer': tokenizer},
        'tokenizer': {
          'fingerprint': loaded.fingerprint,
          'description': loaded.description,
        },
        'max_id': audit.pop('max_id'),
        'audit': audit,
      }
      if names:
        meta['languages'] = list(names)
      corpus.write_meta(folder, meta)
  return audit


def ensure_store(
  source: str,
  tokenizer: str,
  folder: str | os.PathLike,
  *,
  document_break: str | None = None,
  text_field: str = 'text',
  held_out: float = 0.05,
  language_exponent: float = languages.EXPONENT,
  unit_source: str = 'wordpiece',
  workers: int | None = None,
  cache: str | os.PathLike | None = None,
  limit_bytes: int = 1_000_000_000,
  progress: bool = True,
) -> corpus.Store:
  """Opens a store, and builds it first if it is missing and the text small.

  A source of `limit_bytes` or more on disk is not built here; the error prints
  the command that builds it. If the source is missing, only its name is
  compared with the store's. See `build_store` and `corpus.open_store`. Raises
  ValueError, with the differences, if they differ.
  """
  options = dict(
    document_break=document_break,
    text_field=text_field,
    held_out=held_out,
    language_exponent=language_exponent,
    unit_source=unit_source,
  )
  if not _exists(folder):
    text = texts.open_source(
      source, document_break=document_break, text_field=text_field
    )
    size = 0 if source == 'manual' else text.num_bytes
    if size >= limit_bytes:
      raise ValueError(
        f'there is no token store in {folder}, and it is not built on the way '
        f'(the text has {size / 1e9:.1f} GB). Build it once:\n  '
        + _command(source, tokenizer, folder, options)
      )
    audit = build_store(
      source, tokenizer, folder, workers=workers, progress=progress, **options
    )
    if progress:
      audits.print_audit(audit)
    return corpus.open_store(folder, cache=cache)
  store = corpus.open_store(folder, cache=cache)
  request = store.meta['request']
  asked = {
    'source': _fingerprint(source, options, store.meta),
    'document_break': documents.break_name(document_break)
    or request['document_break'],
    'text_field': text_field,
    'tokenizer': _tokenizer_key(tokenizer, store.meta),
    'held_out': held_out,
  } | _asked_options(
    languages.split(source), tokenizer, language_exponent, unit_source
  )
  if different := _differences(store.meta, asked):
    raise ValueError(
      f'the store {folder} was built from something else: {different}. Change '
      'the settings, choose another data.folder, or build it again:\n  '
      + _command(source, tokenizer, folder, options)
      + ' --overwrite'
    )
  return store


def _asked_options(
  names: Collection[str], tokenizer: str, exponent: float, unit_source: str
) -> dict[str, Any]:
  """Returns those options as parts of the request that the store depends on."""
  asked = {} if unit_source == 'wordpiece' else {'unit_source': unit_source}
  if len(names) > 1 and tokenization.parse_training(tokenizer):
    asked['language_exponent'] = exponent
  return asked


def _exists(folder: str | os.PathLike) -> bool:
  """Returns whether a folder holds anything."""
  if storage.is_remote(folder):
    return (epath.Path(folder) / 'store.json').exists()
  folder = pathlib.Path(folder).expanduser()
  return folder.exists() and not _is_empty(folder)


def _upload(store: pathlib.Path, out: epath.Path) -> None:
  """Uploads a store; no other is opened there from the first file to the last.

  Of two builds at once, the one whose files were not touched writes store.json.
  """
  try:
    replaced = corpus.read_meta(out)['files']
  except (ValueError, OSError):
    replaced = ()
  for name in ('store.json', *replaced):
    (out / name).unlink(missing_ok=True)
  print(f'uploading the store to {out}', file=sys.stderr)
  storage.upload_folder(store, out, last='store.json')


def _is_empty(folder: epath.Path | pathlib.Path) -> bool:
  return folder.is_dir() and not any(folder.iterdir())


def _fingerprint(
  source: str, options: dict[str, Any], meta: dict[str, Any]
) -> str:
  """Returns a source's fingerprint, without a download."""
  same_name = source == meta['spec']['source']
  parts = languages.parts(source)
  if same_name and any(map(languages.may_download, parts)):
    return meta['request']['source']
  if source == 'manual':
    return sources.fingerprint_of_manual()
  try:
    return texts.open_source(
      source,
      document_break=options['document_break'],
      text_field=options['text_field'],
    ).fingerprint
  except FileNotFoundError:
    # A training host needs only the store, not its source text.
    return meta['request']['source'] if same_name else source


def _tokenizer_key(tokenizer: str, meta: dict[str, Any]) -> str:
  try:
    return tokenization.request_key(tokenizer)
  except FileNotFoundError:
    if tokenizer == meta['spec']['tokenizer']:
      return meta['tokenizer']['fingerprint']
    raise


def _differences(meta: dict[str, Any], asked: dict[str, Any]) -> str:
  """Names the keys in which a store differs from the request."""
  # A request leaves out units of WordPiece.
  default = {'unit_source': 'wordpiece'}
  built, found = default | meta['request'], []
  for key, value in (default | asked).items():
    # A store with a trained vocabulary is also one of that vocabulary.
    if value == built.get(key) or (
      key == 'tokenizer' and value == meta['tokenizer']['fingerprint']
    ):
      continue
    if key == 'source':
      found.append(
        f'source (the store was built from {meta["spec"]["source"]!r}; the '
        "name or the files changed, or Python's version for manual)"
      )
    elif key == 'tokenizer':
      what = meta['tokenizer'].get('description', 'WordPiece')
      found.append(
        f'tokenizer (built with {meta["spec"]["tokenizer"]!r}: {what})'
      )
    else:
      found.append(f'{key} ({built.get(key)!r} in the store, asked {value!r})')
  return '; '.join(found)


def _standing_audit(
  out: epath.Path | pathlib.Path,
  asked: dict[str, Any],
  overwrite: bool,
  language_exponent: float,
) -> dict[str, Any] | None:
  """Returns the audit of an existing equal store, or None: build one.

  Of languages, with a vocabulary that was given, the audit tells the shares of
  the exponent that is asked for.
  """
  if not out.exists() or _is_empty(out):
    return None
  if not (out / 'store.json').exists():
    if storage.is_remote(out) and corpus.is_half_written(out):
      return None
    raise ValueError(
      f'{out} holds something that is not a token store, and is left alone. '
      'Choose another --out.'
    )
  try:
    meta = corpus.read_meta(out)
    corpus.check_sizes(out, meta)
    different = _differences(meta, asked)
  except (ValueError, OSError) as error:
    if overwrite:
      return None
    raise ValueError(f'{error} (--overwrite replaces it)') from None
  if not different:
    audit = meta['audit']
    if 'languages' in audit:
      audits.weigh_languages(audit, language_exponent)
    return audit
  if overwrite:
    return None
  raise ValueError(
    f'{out} holds a store of something else: {different}. Choose another '
    '--out, or give --overwrite to replace it.'
  )


def _num_cores() -> int:
  if hasattr(os, 'sched_getaffinity'):  # a container may own a part of them
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1


def _command(source, tokenizer, folder, options: dict[str, Any]) -> str:
  words = ['python', '-m', 'data.prepare', '--source', source]
  words += ['--tokenizer', tokenizer, '--out', os.fspath(folder)]
  defaults = dict(
    document_break=None,
    text_field='text',
    held_out=0.05,
    language_exponent=languages.EXPONENT,
    unit_source='wordpiece',
  )
  flags = {'unit_source': 'units'}
  for name in (name for name in defaults if options[name] != defaults[name]):
    words += [f'--{flags.get(name, name)}', str(options[name])]
  return shlex.join(words)


def trained_size(tokenizer: str) -> int | None:
  """Returns N of 'train:KIND:N'; None for a path."""
  training = tokenization.parse_training(tokenizer)
  return training.size if training else None
