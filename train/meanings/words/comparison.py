"""Vectors of words from several sources, for one table."""

from collections.abc import Iterator, Sequence

from etils import epath

from train.meanings.words import sources


def read(
  names: Sequence[str],
  asked: Sequence[str],
  first: int,
  *,
  words: Sequence[str] | None = None,
  contexts: epath.PathLike | None = None,
  tokenizer: str | None = None,
) -> Iterator[tuple[str, sources.Vectors]]:
  """Returns the vectors of words by files and weights: (name, vectors).

  Files give their `first` words, and those `asked` for in any case. Weights
  give the words that the first file gives, or `words` and those asked for. With
  `contexts` they give means over a text, and its `first` words where nothing
  else names words. All files are read and all weights checked at once; each
  model is loaded when it is asked for. Raises ValueError for weights without
  words to choose from, see the readers for other errors.
  """
  files = {
    name: sources.read_file(file, first, asked)
    for name in names
    if (file := sources.find_file(name)) is not None
  }
  models = [name for name in names if name not in files]
  if not models:
    return iter(files.items())
  if words is None and files:
    vectors = next(iter(files.values()))
    words = vectors.words[: vectors.num_first]
  if words is None and contexts is not None:
    words = sources.count_words(contexts, first)
  if words is None and first:
    found = 'holds a model, which can give'
    if not epath.Path(models[0]).expanduser().exists():
      found = 'is no file or folder here; a model of the hub would give'
    raise ValueError(
      f'{models[0]} {found} vectors of any word; expected the words that'
      ' answer an analogy: --words FILE, a file of vectors --beside, or'
      ' --contexts TEXT'
    )
  words = list(words or ())
  # Modules that import JAX, which files have no need of.
  from train.meanings.words import model_vectors

  loaded = model_vectors.open_models(models, tokenizer)
  there = {word.upper() for word in words}
  beside = [word for word in asked if word.upper() not in there]

  def each() -> Iterator[tuple[str, sources.Vectors]]:
    for name in names:
      if name in files:
        yield name, files[name]
        continue
      request = next(loaded), [*words, *beside], len(words)
      if contexts is None:
        yield name, model_vectors.without_context(*request)
      else:
        yield name, model_vectors.in_contexts(*request, contexts)

  return each()
