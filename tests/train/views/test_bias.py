"""Shares of WinoBias' pairs against transformers, a sentence at a time."""

import json

import matplotlib.image
import numpy as np
import pytest
import small_published

from data.vocabulary import tokenization
from train.views import attention_weights, bias, winobias

OCCUPATIONS = ['nurse', 'construction worker', 'cook']
LINES = (
  '[The nurse] called the cook because [she] was late.',
  'The cook gave [the construction worker] a cake, and [his] thanks were few.',
  'The cook met [the nurse] and thanked [her].',
  'Before [she] left, [the cook] paid the nurse.',
  'The cook paid [the nurse] and [her] friend.',  # and in anti the cook
)
OTHER = {'she': 'he', 'his': 'her', 'her': 'him'}
PIECES = {'bert': 'wordpiece:75', 'gpt': 'bpe:75', 'gpt2': 'bytebpe:275'}


def pairs():
  found = []
  for number, line in enumerate(LINES):
    pro = winobias.parse(line, OCCUPATIONS)
    for pronoun, other in OTHER.items():
      if f'[{pronoun}]' in line:
        line = line.replace(f'[{pronoun}]', f'[{other}]')
        break
    if line == LINES[-1].replace('[her]', '[him]'):
      line = '[The cook] paid the nurse and [him].'
    anti = winobias.parse(line, OCCUPATIONS)
    found.append(winobias.Pair(1 + number % 2, pro, anti))
  return found


@pytest.fixture(scope='module', params=PIECES)
def made(request, torch, tmp_path_factory):
  """A folder of a small model that knows few words, and PyTorch's model."""
  sentences = [each for pair in pairs() for each in (pair.pro, pair.anti)]
  tokenizer = tokenization.train(
    [sentence.text for sentence in sentences] * 9,
    tokenization.parse_training(f'train:{PIECES[request.param]}'),
  )
  folder = tmp_path_factory.mktemp(request.param)
  torch.manual_seed(0)
  if request.param == 'bert':
    model = small_published.write_bert(folder, tokenizer, 'BertModel')
  else:
    model = small_published.write_gpt(folder, tokenizer)
  model.set_attn_implementation('eager')
  return request.param, folder, model.eval()


def test_shares_and_picture(made, torch, tmp_path):
  name, folder, model = made
  png, numbers = tmp_path / 'bias.png', tmp_path / 'bias.json'
  bias.run(folder, pairs(), png, numbers)
  written = json.loads(numbers.read_text())
  kept = pairs()[: 4 if name == 'bert' else 3]
  assert written['pairs'] == len(kept)
  assert written['left_out'] == len(LINES) - len(kept)
  found = attention_weights.open_model(folder)
  shares = np.zeros((len(kept), 2, 2))
  heads = np.zeros((2, 2, 2))  # attention to the right occupation
  longest = 0
  for p, pair in enumerate(kept):
    for a, sentence in enumerate((pair.pro, pair.anti)):
      framed = bias.locate(found, sentence)
      ids = framed.row.ids
      (plain,) = found.encode([sentence.text])
      assert (ids[1:-1] if name == 'bert' else ids) == plain
      for part, places in zip(bias.PARTS, framed.places, strict=True):
        start, end = getattr(sentence, part)
        text = found.tokenizer.decode([ids[i] for i in places])
        assert text.strip() == sentence.text[start:end].lower()
      with torch.no_grad():
        layers = model(torch.tensor([ids]), output_attentions=True).attentions
      pronoun, right, other = framed.places
      longest = max(longest, len(pronoun))
      for layer, weights in enumerate(layers):
        of_heads = weights[0][:, pronoun][..., right].sum(-1).mean(-1)
        heads[a, layer] += of_heads.numpy() / len(kept)
        row = weights[0].double().mean(0)[pronoun].mean(0)
        one, two = (float(row[places].sum()) for places in (right, other))
        shares[p, a, layer] = one / (one + two)
  for a, kind in enumerate(('pro', 'anti')):
    np.testing.assert_allclose(
      written['all'][kind]['mean'], shares[:, a].mean(0), rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(
      written['heads'][kind]['right'], heads[a], rtol=0, atol=1e-5
    )
  assert longest > 1  # a pronoun of several tokens
  odd = shares[0::2]
  np.testing.assert_allclose(
    written['type 1']['difference']['mean'],
    (odd[:, 0] - odd[:, 1]).mean(0),
    rtol=0,
    atol=1e-5,
  )
  assert np.ptp(shares) > 0.01
  picture = matplotlib.image.imread(png)
  assert picture.shape[1] > 1000 and np.ptp(picture[..., :3]) > 0.9


def test_sentences_that_are_refused(made):
  name, folder, _ = made
  found = attention_weights.open_model(folder)
  long = winobias.parse(f'{"so " * 70}{LINES[0]}', OCCUPATIONS)
  with pytest.raises(ValueError, match='tokens, expected 64 at most'):
    bias.locate(found, long)
  if name != 'bert':
    with pytest.raises(ValueError, match='no pair is left'):
      bias.measure(found, pairs()[3:])
