"""Texts that are hard to tokenise, and comparisons with a reference."""

import itertools

import transformers

from data.vocabulary import tokenization, tokenizer_export

HARD = (
  '',
  ' ',
  '\n',
  ' \t\r\n \n',
  'Hello, World!  don\'t  "quote" (me) [at] {all} <tag> a_b~c^d`e $5 50%',
  "IT'S we'll they'RE I'm he'd they've o'clock 'tis rock'n'roll",
  'Café naïve ÅNGSTRÖM Straße İstanbul ŁÓDŹ ΣΑΣ',
  'e\u0301le\u0300ve A\u030angstrom \u0301alone',
  '我们去北京。你好 world中文mix 㐀 𠀀 豈 ひらがな 한국어',
  'emoji 😀 👩‍👩‍👧 🇩🇪 ❤️ a😀b',
  'ctrl\x00\x01\x02\x7f\x9f bell\x07 del \ufffd x\x1c\x1d \x1e\x1fy',
  'zero\u200bwidth \u200d join \ufeffbom soft\xadhyphen \u2060word',
  'spaces\u00a0\u2003\u3000\u1680end line\u2028sep par\u2029sep\x85next',
  'tabs\t\tand\x0bvertical\x0cfeeds\r\nof Windows\r\n\r\nand  \n  lines\n\n\n',
  'русский Ёлка ελληνικά עִבְרִית العَرَبِيَّة हिन्दी ไทย',
  '“curly” ‘quotes’ — dash – – ― … ellipsis ´ · • © ™ € ½ ² ﬁ Ⅷ &amp; &lt;',
  '--- !!! ??? ... *** ((( ]]] // \\\\ ++ __ || ;; ,, ~~ -+-+ "\'"',
  'x86 3.14 1,000,000 U.S.A. e-mail@x.org http://e.org/a?b=c C:\\path #t @u',
  'mojibake: cafÃ© â€œquotedâ€\x9d',
  'a' * 1000,
  'ab ' * 400 + 'é' * 1000,
  '<|endoftext|> _start_ </w> <unk> \n</w>',
)


def check_transformers(ours, theirs, batches):
  """Ids of all batches are those of a tokenizer of `transformers`."""
  count = 0
  for texts in itertools.chain(batches(), [HARD]):
    expected = theirs(
      list(texts), add_special_tokens=False, split_special_tokens=True
    )['input_ids']
    for text, ids, wanted in zip(
      texts, ours.encode_batch(texts), expected, strict=True
    ):
      assert ids == wanted, text[:200]
      count += len(ids)
  assert count > 50_000
  return count


def check_same(ours, theirs, texts):
  for text, ids, expected in zip(texts, ours, theirs, strict=True):
    assert ids == expected, repr(text[:200])
  assert sum(map(len, ours)) > 50_000


def same_as_theirs(ours, folder, texts):
  """Both read what was written, and find the same."""
  tokenizer_export.export(ours, folder, max_length=77)
  again = tokenization.load(folder)
  assert again.fingerprint == ours.fingerprint
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  assert theirs.model_max_length == 77
  expected = theirs(
    list(texts), add_special_tokens=False, split_special_tokens=True
  )['input_ids']
  assert ours.encode_batch(texts) == expected == again.encode_batch(texts)
  return theirs
