"""Languages in a source, and their shares."""

import numpy as np
import pytest
from text_sources import read, texts_of, write

from data.text import languages, sources


def test_sources_by_language():
  assert languages.split(
    'en=books/*.txt,de=tfds:wikipedia/1.de:train[:5%]'
  ) == {
    'en': ['books/*.txt'],
    'de': ['tfds:wikipedia/1.de:train[:5%]'],
  }
  assert languages.split('zh-min-nan=a, roa_rup=b=c') == {
    'zh-min-nan': ['a'],
    'roa_rup': ['b=c'],
  }
  for plain in ('manual', 'a,b', './x=1/a.txt', 'gs://b/lang=de/*.txt', '=a'):
    assert languages.split(plain) == {}


@pytest.mark.parametrize(
  'spec, message',
  [
    ('en=a,de/b', "'en=a,de/b': found 'de/b', expected NAME=SOURCE"),
    ('en=a,', "found '', expected NAME=SOURCE"),
    ('en=a,=b', "found '=b', expected NAME=SOURCE"),
    ('en=,de=b', "found 'en=', expected NAME=SOURCE"),
    ('en=a,de=b,en=a', "language 'en' has 'a' twice, expected each of its"),
  ],
)
def test_bad_lists_are_named(spec, message):
  with pytest.raises(ValueError, match=message):
    sources.open_source(spec)


def test_a_path_that_looks_like_a_language(tmp_path):
  (tmp_path / 'a.txt').write_text('A text.\n')
  source = f'aa={tmp_path}/a.txt,lang=en/*.txt'
  with pytest.raises(
    FileNotFoundError, match=r"language 'lang'; .* written \./lang=en/\*\.txt"
  ):
    sources.open_source(source)


def test_shares():
  """English has 1,000 times Icelandic's text and is seen 126 times as often."""
  shares = languages.smooth([1000, 1], 0.7)
  assert shares.sum() == pytest.approx(1)
  assert shares[0] / shares[1] == pytest.approx(125.9, abs=0.1)
  assert languages.smooth([1000, 1], 0).tolist() == [0.5, 0.5]
  np.testing.assert_allclose(languages.smooth([3, 1], 1), [0.75, 0.25])
  for exponent in (-0.1, 1.01, float('nan')):
    with pytest.raises(ValueError, match=f'language_exponent {exponent}: exp'):
      languages.check_exponent(exponent)


def test_the_text_of_one_language_after_the_other(tmp_path):
  write(tmp_path / 'en' / 'a.txt', 'First text.')
  write(tmp_path / 'en' / 'b.txt', 'Second text.')
  write(tmp_path / 'en' / 'none.txt', '')
  write(tmp_path / 'de.jsonl', '{"text": "Erster."}\n{"text": "Zweiter."}\n')
  spec = f'en={tmp_path}/en,de={tmp_path}/de.jsonl'
  source = sources.open_source(spec)
  assert source.languages == ('en', 'de')
  assert source.document_break == 'en=file, de=record'
  for _ in range(2):
    pieces = list(source.pieces())
    assert [piece.language for piece in pieces] == [0, 0, 1, 1]
    assert texts_of(source) == [
      'First text.',
      'Second text.',
      'Erster.',
      'Zweiter.',
    ]
    assert source.bytes_read == source.num_bytes
    assert source.dropped == {'empty file': 1}
    assert len(source.dropped_files['empty file']) == 1
  other = sources.open_source(f'en={tmp_path}/en,xx={tmp_path}/de.jsonl')
  assert other.fingerprint != source.fingerprint
  plain = f'{tmp_path}/en'
  assert read(plain) == ['First text.', 'Second text.']
  assert sources.open_source(plain).languages == ('',)
  with pytest.raises(ValueError, match=r"white.txt' holds no text at all"):
    write(tmp_path / 'white.txt', ' \n')
    list(sources.open_source(f'{spec},fr={tmp_path}/white.txt').pieces())


def test_several_sources_of_a_language(tmp_path):
  for name in ('a', 'b'):
    write(tmp_path / f'{name}.txt', f'First {name}.\nSecond {name}.')
  (tmp_path / 'c.jsonl').write_text('{"text": "Third."}\n')
  spec = f'en={tmp_path}/a.txt,de={tmp_path}/b.txt,en={tmp_path}/b.txt'
  assert languages.split(spec)['en'] == [f'{tmp_path}/{x}.txt' for x in 'ab']
  source = sources.open_source(spec)
  assert source.languages == ('en', 'de')
  found = [(piece.language, piece.text[:7]) for piece in source.pieces()]
  assert found == [(0, 'First a'), (0, 'First b'), (1, 'First b')]
  assert source.bytes_read == source.num_bytes
  one = sources.open_source(f'en={tmp_path}/a.txt,de={tmp_path}/b.txt')
  assert one.fingerprint != source.fingerprint
  mixed = f'en={tmp_path}/a.txt,en={tmp_path}/c.jsonl'
  source = sources.open_source(mixed)
  assert source.document_break == 'file and record'
  assert texts_of(source) == ['First a.\nSecond a.', 'Third.']
  write(tmp_path / 'd.txt', 'One.\nTwo.\n\n' * 9)
  message = (
    r"language 'en': the documents of '.*/a.txt' end by 'file' .*, those of"
    r" '.*/d.txt' by 'blank_line' .*; expected one rule for both"
  )
  with pytest.raises(ValueError, match=message):
    sources.open_source(f'{mixed},en={tmp_path}/d.txt')


def test_a_folder_for_each_language(tmp_path):
  for name in ('hu', 'de', 'zh-min-nan'):
    write(tmp_path / name / 'a.txt', f'Text of {name}.')
  (tmp_path / 'README').write_text('No language.')
  (tmp_path / '.hidden').mkdir()
  source = sources.open_source(f'{tmp_path}/*/')
  assert source.languages == ('de', 'hu', 'zh-min-nan')
  assert texts_of(source) == [f'Text of {n}.' for n in source.languages]
  with pytest.raises(FileNotFoundError, match='no file matches'):
    sources.open_source(f'{tmp_path}/none/*/')
  (tmp_path / '2nd').mkdir()
  with pytest.raises(ValueError, match="found the folder '2nd', expected the"):
    sources.open_source(f'{tmp_path}/*/')


def test_paths_in_a_source():
  assert languages.paths('manual') == ['manual']
  assert languages.paths('ernie:gs://b/a') == ['gs://b/a']
  listed = 'en=gs://b/a,zh=ernie:gs://c/d,en=e'
  assert languages.paths(listed) == ['gs://b/a', 'e', 'gs://c/d']
  listed = 'a=dialogue:gs://b/a,b=task:mrpc:gs://c/d,c=task:mrpc:tfds'
  assert languages.paths(listed) == ['gs://b/a', 'gs://c/d', 'tfds']
  listed = 'a=hf:gs://b/a:train,b=hf:gs://b/b,c=hf:glue:cola'
  assert languages.paths(listed) == ['gs://b/a', 'gs://b/b', 'hf:glue:cola']
  # Not listed, as the bucket is not checked yet.
  assert languages.paths('gs://no-such/a/*/') == ['gs://no-such/a']
  assert languages.paths('/*/') == ['/']
