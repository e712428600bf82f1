"""A table of perplexities: n-grams and models, one text, one vocabulary."""

from collections.abc import Mapping, Sequence

import numpy as np
from etils import epath

from data.ngrams import texts as ngram_texts
from data.ngrams.model import perplexity
from data.store import corpus
from data.vocabulary.tokenizer import Tokenizer
from train.host import files
from train.host.files import Json
from train.language import held_out
from train.language.ngrams import Scorer
from train.pretrain import run_stores
from train.run import workdirs
from train.vectors import trained_model
from train.vectors.trained_model import TrainedModel

_ROUNDS = 50  # of expectation and maximisation


def open_text(
  path: str, weights: Sequence[str]
) -> tuple[corpus.Store, dict[str, TrainedModel]]:
  """Opens a token store, or the store of a workdir, and the models to compare.

  The model of a workdir is the first of them. The names of the models are the
  last parts of their paths, such as bert or bert@900; whole paths where two are
  alike. Weights that are named twice count once. Raises ValueError for a model
  that predicts no tokens, has another vocabulary, or was trained on another
  store: its text may include the held-out text of this one.
  """
  config = workdirs.read_config(path)
  if config is None:
    store = corpus.open_store(path)
  else:
    store, weights = run_stores.open_store(config), [path, *weights]
  weights = list(dict.fromkeys(weights))
  ends = [epath.Path(path).resolve().name for path in weights]
  names = weights if len({*ends}) < len(ends) else ends
  found = {}
  for name, path in zip(names, weights, strict=True):
    each = TrainedModel(path, use=None)
    held_out.check_predicts_tokens(each)
    ours, theirs = store.tokenizer, each.tokenizer
    cure = f'train it with --config.data.folder={store.folder}'
    if theirs is None or theirs.fingerprint != ours.fingerprint:
      told = 'none' if theirs is None else _described(theirs)
      raise ValueError(
        f'{path}: its vocabulary is {told}, that of the text'
        f' {_described(ours)}: perplexities of different vocabularies cannot be'
        f' compared; {cure}'
      )
    trained_on = each.folder / workdirs.STORE_FILE
    if trained_on.exists():
      digest = files.read_json(trained_on).get('digest')
      if digest != store.meta['digest']:
        raise ValueError(
          f'{path}: was trained on the text of another token store than'
          f' {store.folder}, which may include the held-out text: {cure}'
        )
    found[name] = each
  return store, found


def _described(tokenizer: Tokenizer) -> str:
  return f'{tokenizer.description} (of {tokenizer.vocab_size:,})'


def compare(
  store: corpus.Store,
  ngrams: Sequence[Scorer],
  models: Mapping[str, TrainedModel],
  *,
  num_tokens: int | None = None,
  mix: float | None = None,
) -> dict[str, Json]:
  """Returns the perplexities of held-out text by all models.

  Args:
    store: its held-out text is scored, see `held_out.read`.
    ngrams: models mix with the last of them.
    models: name -> model, opened, see `open_text`.
    num_tokens: as in `held_out.read`.
    mix: weight of the n-grams in a mixture with each left-to-right model, 0.5
      in Bengio et al. 2003. By default each half of the tokens has the weight
      that is best for the other half.

  Returns:
    Figures, and 'rows' with each model's name, perplexity and, if it was mixed,
    the perplexity of the mixture and the mean weight.
  """
  parts = held_out.read(store, num_tokens)
  if not parts:
    raise ValueError(f'{store.folder}: no held-out document of two tokens')
  words = ngram_texts.words_of_store(store).of_token
  targets = np.concatenate([words[text.tokens[1:]] for text in parts])
  rows, last = [], None
  for scorer in ngrams:
    last = np.concatenate(
      [scorer.log_probs(words[text.tokens]) for text in parts]
    )
    name = f'{scorer.model.order}-gram'
    rows.append({'model': name, 'perplexity': perplexity(last)})
  opened = trained_model.in_turn(models.values())
  for name, each in zip(models, opened, strict=True):
    for reading, found in held_out.score(each, store, parts).items():
      values = np.concatenate(found).astype(np.float64)
      row = {
        'model': ' '.join((name, each.name, reading)).rstrip(),
        'perplexity': perplexity(values),
      }
      if not reading and last is not None:
        row |= _mixed(values, last, mix)
      rows.append(row)
  return {
    'texts': len(parts),
    'scored_tokens': len(targets),
    'unknown_tokens': int((targets == 0).sum()),
    'train_tokens': int(store.counts.sum()),
    'rows': rows,
  }


def _mixed(
  model: np.ndarray, ngram: np.ndarray, weight: float | None
) -> dict[str, float]:
  """Returns the perplexity of a mixture, and the weight of the n-grams."""
  halves = np.array_split(np.arange(len(model)), 2)
  weights = [weight, weight]
  if weight is None:
    # Each half's weight is fitted on the other.
    weights = [fit_weight(model[half], ngram[half]) for half in halves[::-1]]
  mixed = np.concatenate(
    [_mix(model[h], ngram[h], w) for h, w in zip(halves, weights, strict=True)]
  )
  return {
    'mixed_perplexity': perplexity(mixed),
    'ngram_weight': float(np.mean(weights)),
  }


def _mix(first: np.ndarray, second: np.ndarray, weight: float) -> np.ndarray:
  with np.errstate(divide='ignore'):
    return np.logaddexp(
      np.log1p(-weight) + first, np.log(np.float64(weight)) + second
    )


def fit_weight(first: np.ndarray, second: np.ndarray) -> float:
  """Returns the weight of the second in the mixture most likely of a text."""
  weight = 0.5
  for _ in range(_ROUNDS):
    mixed = _mix(first, second, weight)
    weight = float(np.exp(np.log(weight) + second - mixed).mean())
    weight = min(max(weight, 1e-6), 1 - 1e-6)
  return weight


def shown(figures: Mapping[str, Json]) -> dict[str, Json]:
  """Returns figures to print, with a line of text for each model."""
  lines = {}
  for row in figures['rows']:
    text = f'{row["perplexity"]:,.2f}'
    if 'mixed_perplexity' in row:
      text += (
        f'; mixed with the n-gram {row["mixed_perplexity"]:,.2f} (its weight'
        f' {row["ngram_weight"]:.2f})'
      )
    lines[row['model']] = text
  return {**figures, **lines}
