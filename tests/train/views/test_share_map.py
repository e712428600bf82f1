"""Mean shares over a file against the shares of each text."""

import json

import matplotlib.image
import numpy as np
import pytest

from train.vectors.trained_model import TrainedModel
from train.views import (
  attention_shares,
  attention_texts,
  attention_weights,
  share_map,
)

# Texts of several lengths; only one has a word twice.
LINES = (
  'the yield statement',
  'an object',
  'the name is the name of an object',
)


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'lines.txt'
  path.write_text('\n'.join(LINES) + '\n')
  return path


@pytest.mark.slow
@pytest.mark.parametrize('batch_bytes', [128_000_000, 20_000])
def test_means_and_picture(
  small_bert, path, tmp_path, monkeypatch, batch_bytes
):
  monkeypatch.setattr(attention_weights, 'BATCH_BYTES', batch_bytes)
  png, numbers = tmp_path / 'shares.png', tmp_path / 'shares.json'
  texts = attention_texts.read(path)
  printed = share_map.run(small_bert, texts, png, numbers)
  written = json.loads(numbers.read_text())
  found = attention_weights.open_model(small_bert)
  of_texts = []
  for text in texts:  # one at a time, without padding
    (attention,) = attention_weights.attend(found, [text])
    of_texts.append(
      attention_shares.measure(attention, causal=False, null_key=False)
    )
  assert written['texts'] == printed['texts'] == 3
  assert written['measures']['same_word']['texts'] < 3
  for name, measure in written['measures'].items():
    shares = [shares[name] for shares in of_texts if name in shares]
    assert measure['texts'] == len(shares)
    mean = np.mean(shares, axis=0)
    np.testing.assert_allclose(measure['heads'], mean, rtol=0, atol=1e-6)
    title = attention_shares.MEASURES[name][0]
    assert printed[f'mean share of {title}'] == pytest.approx(mean.mean())
  picture = matplotlib.image.imread(png)
  assert picture.shape[1] > 1000 and np.ptp(picture[..., :3]) > 0.9


def test_a_null_key_has_its_map(small_bert, path, tmp_path, monkeypatch):
  found = attention_weights.open_model(small_bert)
  texts = attention_texts.read(path)
  kept = [
    each._replace(weights_LNTS=0.75 * each.weights_LNTS)
    for each in attention_weights.attend(found, texts)
  ]
  monkeypatch.setattr(attention_weights, 'attend', lambda *_: iter(kept))
  module = found.model.clone(null_key=True)
  found = TrainedModel(found.weights._replace(model=module))
  means, counts = share_map.measure(found, texts)
  np.testing.assert_allclose(means['null_key'], 0.25, atol=1e-6)
  assert counts['null_key'] == len(LINES)
  share_map.draw(means, tmp_path / 'a.png', 'a $model')


def test_lines_that_are_refused(tmp_path):
  path = tmp_path / 'a.txt'
  for text, message in (
    ('one\n \ntwo\n', 'a.txt, line 2: is blank, expected a text'),
    ('', 'a.txt: is empty'),
  ):
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
      attention_texts.read(path)
