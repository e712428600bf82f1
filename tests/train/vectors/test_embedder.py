"""The file of vectors: the released ones, a data set a line, all or nothing."""

import json
import sys

import h5py
import numpy as np
import pytest
from small_elmo import NEAR, embed_alone, small_elmo

from models.pretrained import elmo as pretrained
from train import embed
from train.vectors import elmo_vectors, embedder, text_counts
from train.vectors.request import Choice
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def small():
  return small_elmo()


@pytest.mark.slow
def test_released_vectors(sesame_data, tmp_path):
  """Of three streams, of which the released program read a sentence a time."""
  folder = sesame_data / 'fixtures/elmo/model'
  streams = json.loads((folder / 'lm_embeddings_sentences.json').read_text())
  text, output = tmp_path / 'text', tmp_path / 'out.hdf5'
  lines = [line for lines in zip(*streams, strict=True) for line in lines]
  text.write_text('\n'.join(lines) + '\n')
  released = TrainedModel(folder)
  assert released.tokenizer is None
  figures = embedder.embed_file(
    *released.prepared(),
    text,
    output,
    choice=Choice('top'),
    stateful=True,
    batch_size=3,
  )
  assert figures['sentences'] == len(lines) == 30
  with h5py.File(output) as ours:
    for k in range(3):
      with h5py.File(folder / f'lm_embeddings_{k}.hdf5') as theirs:
        for i in range(10):
          expected = np.concatenate(theirs[str(i)][()], axis=-1)
          found = ours[str(3 * i + k)][()]
          assert found.shape == expected.shape
          np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


LONG = 'x' * 48
TEXT = f"""A cat sat .

cat
. , ; !
{LONG}yyyyyyyyyyyy {LONG} \u65e5\u672c\u8a9e\u306e{'z' * 48}
  A cat sat .  \u00a0
"""


@pytest.fixture
def text(tmp_path):
  path = tmp_path / 'text.txt'
  path.write_text(TEXT)
  return path


@pytest.fixture
def output(tmp_path):
  (tmp_path / 'out').mkdir()
  return tmp_path / 'out' / 'vectors.hdf5'


def test_a_data_set_a_line(small, text, output):
  figures = embedder.embed_file(*small, text, output)
  assert list(output.parent.iterdir()) == [output]
  counts = {
    key: figures[key]
    for key in ('sentences', 'words', 'cut_words', 'distinct_words')
  }
  assert counts == dict(sentences=6, words=16, cut_words=2, distinct_words=10)
  with h5py.File(output) as file:
    assert file.keys() == {*map(str, range(6)), 'sentence_to_index'}
    shapes = [file[str(i)].shape for i in range(6)]
    assert shapes == [(3, n, 12) for n in (4, 0, 1, 4, 3, 4)]
    assert {file[str(i)].dtype for i in range(6)} == {np.dtype('float32')}
    for i, line in enumerate(TEXT.splitlines()):
      expected, _ = embed_alone(*small, line.split())
      np.testing.assert_allclose(file[str(i)], expected, **NEAR)
    # Bytes beyond the 48th are not seen.
    cut, whole = file['4'][0, :2]
    np.testing.assert_array_equal(cut, whole)
    np.testing.assert_array_equal(file['0'], file['5'])
    assert file['sentence_to_index'].shape == (1,)
    index = json.loads(file['sentence_to_index'][0])
  lines = [line.strip() for line in TEXT.splitlines()]
  assert index == {line: str(lines.index(line)) for line in lines}


def test_jsonl_in_the_order_of_the_lines(small, text, output):
  lines = output.with_suffix('.jsonl')
  for path in (output, lines):
    embedder.embed_file(
      *small, text, path, choice=Choice('top'), batch_tokens=8
    )
  records = [json.loads(line) for line in lines.read_text().splitlines()]
  assert [record['index'] for record in records] == [*range(6)]
  with h5py.File(output) as file:
    for record, line in zip(records, TEXT.splitlines(), strict=True):
      assert record['words'] == line.split()
      expected = file[str(record['index'])][()]
      found = np.array(record['vectors'], np.float32)
      np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_not_a_name_before_it_is_whole(small, text, output, monkeypatch):
  """So whoever kills it, finds nothing or the old file."""
  sound = elmo_vectors.embed_numbered

  def stop(*arguments, **options):
    for done, item in enumerate(sound(*arguments, **options)):
      if done == 3:
        (partial,) = set(output.parent.iterdir()) - {output}
        assert partial.name.startswith('.')
        raise KeyboardInterrupt
      yield item

  monkeypatch.setattr(elmo_vectors, 'embed_numbered', stop)
  with pytest.raises(KeyboardInterrupt):
    embedder.embed_file(*small, text, output)
  assert not list(output.parent.iterdir())
  output.write_text('old')
  with pytest.raises(KeyboardInterrupt):
    embedder.embed_file(*small, text, output, overwrite=True)
  assert [path.read_text() for path in output.parent.iterdir()] == ['old']
  monkeypatch.undo()
  embedder.embed_file(*small, text, output, overwrite=True)
  assert h5py.is_hdf5(output)


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'is empty, expected a sentence a line'),
    (b'a\n\nb c\nd\xff e\n', r'text.txt: not UTF-8 at byte 8 .* in line 4'),
    (b'a\n' + b'b ' * 20_000, 'line 2: 20,000 words, expected a sentence a li'),
  ],
)
def test_what_is_no_text_is_named_before_work(
  small, text, output, content, message, monkeypatch
):
  monkeypatch.setattr(elmo_vectors, 'embed_numbered', pytest.fail)
  text.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    embedder.embed_file(*small, text, output)
  assert not list(output.parent.iterdir())


def test_a_text_that_changes_is_refused(small, text, output):
  counts = text_counts.count(text, str.split)
  text.write_text('')  # as the second reading of a pipe would find it
  with pytest.raises(ValueError, match='0 lines were read, and 6 before'):
    embedder.embed_file(*small, text, output, counts=counts)
  assert not list(output.parent.iterdir())


@pytest.mark.parametrize(
  'options, message',
  [
    ({'choice': Choice((0, 3))}, '--layers=0,3: expected .* from -3 to 2'),
    ({'choice': Choice('middle')}, '--layers=middle: expected all, mean, top'),
    ({'batch_tokens': 0}, '--batch_tokens=0: expected 1 or more'),
    ({'batch_size': -1, 'stateful': True}, '--batch_size=-1: expected 1 or'),
  ],
)
def test_options_without_sense(small, text, output, options, message):
  with pytest.raises(ValueError, match=message):
    embedder.embed_file(*small, text, output, **options)
  assert not list(output.parent.iterdir())


def test_command(small, text, output, tmp_path, monkeypatch, capsys):
  weights = tmp_path / 'weights'
  pretrained.write_folder(weights, *small)
  folder = str(weights)

  def run(*options):
    monkeypatch.setattr(
      sys, 'argv', ['embed', folder, str(text), str(output), *options]
    )
    embed.main()
    return capsys.readouterr()

  printed = run('--json')
  figures = json.loads(printed.out)
  assert figures['words'] == 16 and figures['words_per_second'] > 0
  assert 'Cut after 48 bytes, as released: 2 of' in printed.err
  with h5py.File(output) as file:
    everything = file['0'][()]
  printed = run('--overwrite', '--layers=-1,0', '--stateful')
  assert 'distinct_words' in printed.out
  with h5py.File(output) as file:
    np.testing.assert_allclose(file['0'], everything[[2, 0]], **NEAR)
  for options in (['--batch_size=2'], ['--stateful', '--batch_tokens=9']):
    with pytest.raises(SystemExit):
      run(*options)


def test_words_of_running_text(small, text, output):
  words = pytest.importorskip('data.vocabulary.words')
  line = 'The cat, it sat.'
  text.write_text(f'{line}\n\n')
  split = text_counts.splitter(running=True)
  found = split(line)
  assert found == words.split_words(line, 'marks')
  assert len(found) > len(line.split())
  figures = embedder.embed_file(*small, text, output, split=split)
  assert figures['words'] == len(found)
  with h5py.File(output) as file:
    expected, _ = embed_alone(*small, found)
    np.testing.assert_allclose(file['0'], expected, **NEAR)
    assert json.loads(file['sentence_to_index'][0]) == {line: '0', '': '1'}
