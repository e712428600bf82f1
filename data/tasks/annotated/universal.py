"""Universal Dependencies: CoNLL-U's words, and the task of their UPOS tags."""

from collections.abc import Iterator

from etils import epath

from data.tasks import examples, files

_COLUMNS = (
  'number',
  'form',
  'lemma',
  'UPOS',
  'XPOS',
  'features',
  'head',
  'relation',
  'dependencies',
  'others',
)
# A word's place and columns: its number, form, lemma, UPOS and so on.
Word = tuple[str, list[str]]
# universaldependencies.org/u/pos
UPOS = (
  'ADJ',
  'ADP',
  'ADV',
  'AUX',
  'CCONJ',
  'DET',
  'INTJ',
  'NOUN',
  'NUM',
  'PART',
  'PRON',
  'PROPN',
  'PUNCT',
  'SCONJ',
  'SYM',
  'VERB',
  'X',
)
# The languages of Parallel UD (Zeman et al. 2017), which is a test set.
_PARALLEL = {
  'ar': 'Arabic',
  'cs': 'Czech',
  'de': 'German',
  'en': 'English',
  'es': 'Spanish',
  'fi': 'Finnish',
  'fr': 'French',
  'hi': 'Hindi',
  'id': 'Indonesian',
  'is': 'Icelandic',
  'it': 'Italian',
  'ja': 'Japanese',
  'ko': 'Korean',
  'pl': 'Polish',
  'pt': 'Portuguese',
  'ru': 'Russian',
  'sv': 'Swedish',
  'th': 'Thai',
  'tr': 'Turkish',
  'zh': 'Chinese',
}


def sentences(file: epath.Path) -> Iterator[list[Word]]:
  """Yields the words of each sentence of a CoNLL-U file.

  Words are the syntactic ones: multi-word tokens (numbered 3-4), which they
  are the parts of, and empty nodes (3.1) are left out.
  """
  for lines in files.read_sentences(file, _COLUMNS):
    words = []
    for where, columns in lines:
      number = columns[0]
      if number == str(len(words) + 1):
        words.append((where, columns))
      elif not _is_no_word(number):
        raise ValueError(
          f'{where}: found the word {number}, expected the word'
          f' {len(words) + 1}, joined words such as 3-4 or an empty node such'
          ' as 3.1'
        )
    if not words:
      raise ValueError(f'{lines[0][0]}: found a sentence without any word')
    yield words


def _is_no_word(number: str) -> bool:
  """Returns whether a number is of joined words or of an empty node."""
  first, mark, last = number.partition('-' if '-' in number else '.')
  return bool(mark) and first.isdecimal() and last.isdecimal()


def _rows(file: epath.Path, split: str) -> examples.Found:
  """Yields sentences with the UPOS of each word; _ marks a missing one."""
  del split
  for number, words in enumerate(sentences(file)):
    tags = tuple(columns[3] for _, columns in words)
    yield (
      words[0][0],
      examples.TaggedExample(
        id=str(number),
        words=tuple(columns[1] for _, columns in words),
        tags=None if set(tags) == {'_'} else tags,
        document=number,
      ),
    )


def _parallel_files(language: str) -> tuple[str, ...]:
  return (f'{language}_pud-ud-test.conllu',)


def _parallel(language: str) -> examples.Task:
  """Returns the test set of Parallel UD in a language."""
  return examples.Task(
    rows=_rows,
    name=f'pud_{language}',
    title=f'Parallel UD, {_PARALLEL[language]}',
    kind='tagging',
    files={'test': _parallel_files(language)},
    folders=('pud', 'PUD', f'UD_{_PARALLEL[language]}-PUD'),
    labels=UPOS,
    submission='conll',
    sizes={'test': 1000},
    url=(
      f'https://github.com/UniversalDependencies/UD_{_PARALLEL[language]}-PUD'
    ),
  )


UD_POS = examples.Task(
  rows=_rows,
  name='ud_pos',
  title='UPOS tags of the English Web Treebank',
  kind='tagging',
  files={
    split: (f'en_ewt-ud-{split}.conllu', f'{split}.conllu')
    for split in ('train', 'dev', 'test')
  }
  | {'test_pud': _parallel_files('en')},
  folders=(
    'ud_english_ewt',
    'UD_English-EWT',
    'pud',
    'PUD',
    'UD_English-PUD',
  ),
  labels=UPOS,
  submission='conll',
  sizes={'train': 12544, 'dev': 2001, 'test': 2077, 'test_pud': 1000},
  url='https://github.com/UniversalDependencies/UD_English-EWT',
  language='en',
  languages={
    language: _parallel(language) for language in _PARALLEL if language != 'en'
  },
)

TASKS = (UD_POS,)
