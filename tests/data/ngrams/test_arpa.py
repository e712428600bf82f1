"""ARPA files: written and read, from elsewhere, and damaged."""

import gzip

import numpy as np
import pytest
from ngram_texts import count_lines, draw_lines

from data.ngrams import arpa, smoothing

# As SRILM writes it: a preface, no <unk>, -99 for <s>, any order of lines.
OTHERS = """made by another program

\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-99\t<s>\t-0.30103
-0.5\tb
-0.6\t</s>
-0.4\ta\t-0.2

\\2-grams:
-0.1\ta b
-0.3\t<s> a
-0.7\ta a

\\end\\
"""


def test_what_is_written_is_read(tmp_path):
  counts, words = count_lines(tmp_path, draw_lines(40), 4)
  model = smoothing.katz(counts, words, 4)
  path = tmp_path / 'katz.arpa'
  with path.open('w') as file:
    arpa.write(model, file)
  found = arpa.read(path)
  assert found.words == model.words
  for ours, theirs in zip(found.levels, model.levels, strict=True):
    np.testing.assert_array_equal(ours.keys, theirs.keys)
    np.testing.assert_allclose(ours.log_probs, theirs.log_probs, rtol=1e-6)
    np.testing.assert_allclose(ours.backoffs, theirs.backoffs, rtol=1e-6)
  packed = tmp_path / 'katz.arpa.gz'
  packed.write_bytes(gzip.compress(path.read_bytes()))
  assert arpa.read(packed).words == model.words
  packed.write_bytes(packed.read_bytes()[:-30])
  with pytest.raises(ValueError, match=r'katz.arpa.gz, line .*cannot be read'):
    arpa.read(packed)


def test_words_end_at_white_space_of_ascii_alone(tmp_path):
  """As for KenLM: a no-break space is a letter; a byte order mark is none."""
  path = tmp_path / 'others.arpa'
  text = OTHERS.partition('\n\n')[2].replace('b', '1\xa0000')
  path.write_text('\ufeff' + text.replace('\\end', '\n\\end'))
  model = arpa.read(path)
  assert model.words == ('<unk>', '<s>', '</s>', '1\xa0000', 'a')
  with (tmp_path / 'ours.arpa').open('w') as file:
    arpa.write(model, file)
  assert arpa.read(tmp_path / 'ours.arpa').words == model.words


def test_a_file_of_another_program(tmp_path):
  path = tmp_path / 'others.arpa'
  path.write_text(OTHERS)
  model = arpa.read(path)
  assert model.words == ('<unk>', '<s>', '</s>', 'b', 'a')
  ids = np.array([model.ids[word] for word in '<s> a b </s>'.split()] + [0])
  starts = np.arange(len(ids)) == 0
  found = model.log_probs(ids, starts) / np.log(10)
  np.testing.assert_allclose(found[1:], [-0.3, -0.1, -0.6, -np.inf], rtol=1e-6)


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    ('\\data\\', 'data', r'line 19: the file ends, expected \\data\\'),
    ('ngram 1=4', 'ngrams 1=4', r"line 4: 'ngrams 1=4': expected ngram 1="),
    ('ngram 2=3', 'ngram 3=3', r"line 5: 'ngram 3=3': expected ngram 2=COUNT"),
    ('ngram 1=4', 'ngram 1=5', r"line 13: '\\\\2-grams:': .* one of 5 1-grams"),
    (
      'ngram 1=4',
      'ngram 1=3',
      r'line 11: .*expected \\2-grams:, after as many',
    ),
    ('-0.5\tb', '-0.5\tb c d', r'line 9: .*a log10 probability, 1 words'),
    ('-0.5\tb', 'x\tb', r'line 9: .*expected numbers before and behind'),
    ('-0.5\tb', '0.5\tb', r'line 9: .*0.5 is not the logarithm of a prob'),
    ('-0.5\tb', '-0.5\ta', r"line 11: 'a' a second time"),
    ('<s> a', '<s> c', r"line 15: 'c' is not among the 1-grams"),
    ('a a', 'a b', r'line 16: a 2-gram a second time'),
    ('\\end\\', '', r'line 19: the file ends, expected \\end\\'),
  ],
)
def test_a_broken_line_is_named(tmp_path, old, new, message):
  path = tmp_path / 'broken.arpa'
  path.write_text(OTHERS.replace(old, new, 1))
  with pytest.raises(ValueError, match=rf'broken.arpa, {message}'):
    arpa.read(path)


def test_an_ngram_needs_its_beginning(tmp_path):
  longer = OTHERS.replace('ngram 2=3', 'ngram 2=3\nngram 3=1')
  longer = longer.replace('\\end\\', '\\3-grams:\n-0.1\tb a b\n\n\\end\\')
  (tmp_path / 'a.arpa').write_text(longer)
  with pytest.raises(ValueError, match='line 20: the first 2 words of a 3-gr'):
    arpa.read(tmp_path / 'a.arpa')


def test_words_with_spaces_are_not_written(tmp_path):
  counts, words = count_lines(tmp_path, ['a b'], 1)
  model = smoothing.add_k(counts, (*words[:-1], 'b c'), 1)
  with pytest.raises(ValueError, match="word 'b c': expected no white space"):
    with (tmp_path / 'x').open('w') as file:
      arpa.write(model, file)


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path):
  path = tmp_path / 'latin1.arpa'
  path.write_bytes(OTHERS.replace('\tb\n', '\tcafé\n').encode('latin-1'))
  with pytest.raises(ValueError, match='line 9: not UTF-8 at byte .*iconv'):
    arpa.read(path)
