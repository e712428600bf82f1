"""Mean vectors of all layers against transformers, and the command."""

import json

import numpy as np
import pytest
import small_published
import transformers
from matplotlib import image
from small_elmo import embed_alone, small_elmo

from data.vocabulary import tokenization
from train import similarity
from train.meanings import retrieval, translations
from train.vectors.request import Choice
from train.vectors.trained_model import TrainedModel

FIRST = [
  'the value of a class',
  'it returns a list of all names',
  'the same object, again',
  'no module has this name',
  'a function is called',
]
SECOND = [
  'a class has a value',
  'all names, as a list',
  'an object that is the same',
  'this is the name of no module',
  'one calls functions',
]


@pytest.fixture
def paths(tmp_path):
  for name, lines in (('a.txt', FIRST), ('b.txt', SECOND)):
    (tmp_path / name).write_text('\n'.join(lines) + '\n')
  return 'a.txt', 'b.txt'  # where `run_command` runs


def means_by_transformers(folder, text, torch, added):
  (ids,) = TrainedModel(folder).encode([text])
  begin, end = added
  model = transformers.AutoModel.from_pretrained(folder).eval()
  with torch.no_grad():
    outputs = model(
      torch.tensor([[*begin, *ids, *end]]), output_hidden_states=True
    )
  return np.stack([x[0].mean(0).numpy() for x in outputs.hidden_states])


@pytest.mark.slow
def test_bert_by_layer(small_bert, torch, paths, run_command, tmp_path):
  arguments = small_bert, '--parallel', *paths, '--by_layer'
  out = run_command(similarity, *arguments, '--out', 'c.png', '--json').out
  figures = json.loads(out)
  found = TrainedModel(small_bert)
  symbols = [found.tokenizer.cls_id], [found.tokenizer.sep_id]
  one, other = (
    np.stack(
      [means_by_transformers(small_bert, text, torch, symbols) for text in each]
    )
    for each in (FIRST, SECOND)
  )
  for texts, expected in ((FIRST, one), (SECOND, other)):
    ours = translations.embed(found, texts, Choice('all'))
    np.testing.assert_allclose(ours, expected, atol=1e-5)
  assert {k: figures[k] for k in ('files', 'sentences', 'chance')} == {
    'files': ['a.txt', 'b.txt'],
    'sentences': 5,
    'chance': 0.2,
  }
  assert [each.pop('layer') for each in figures['layers']] == [
    '0 (embeddings)',
    '1',
    '2',
  ]
  for number, layer in enumerate(figures['layers']):
    expected = retrieval.accuracies(one[:, number], other[:, number])
    assert layer == expected
  height, width, _ = image.imread(tmp_path / 'c.png').shape
  assert width > 2 * height > 1000

  # The last layer alone, as a table.
  arguments = small_bert, '--parallel', *paths, '--out', 'c.png', '--overwrite'
  last = run_command(similarity, *arguments).out
  header, _, row, _, caption, *_ = last.splitlines()
  cells = [cell.strip() for cell in row.strip('|').split('|')]
  assert cells == [
    '2',
    *(
      f'{100 * ways["forward"]:.1f} / {100 * ways["backward"]:.1f}'
      for ways in figures['layers'][2].values()
    ),
  ]
  assert 'margin, centred' in header
  assert caption.endswith('; by chance 20.')


def test_gpt2(small_store, torch, tmp_path):
  text = '\n'.join(FIRST + SECOND)
  tokenizer = tokenization.train(
    [text], tokenization.parse_training('train:bytebpe:300')
  )
  small_published.write_gpt(tmp_path / 'gpt2', tokenizer)
  found = TrainedModel(tmp_path / 'gpt2')
  ours = translations.embed(found, FIRST, Choice('all'))
  for vectors, text in zip(ours, FIRST, strict=True):
    theirs = means_by_transformers(tmp_path / 'gpt2', text, torch, ([], []))
    np.testing.assert_allclose(vectors, theirs, atol=1e-5)


def test_elmo(small_elmo_folder, paths, run_command):
  arguments = small_elmo_folder, '--parallel', *paths, '--by_layer', '--json'
  figures = json.loads(run_command(similarity, *arguments).out)
  words = [text.replace(',', ' ,').split() for text in FIRST + SECOND]
  means = np.stack(
    [embed_alone(*small_elmo(), each)[0].mean(1) for each in words]
  )
  for number, layer in enumerate(figures['layers']):
    del layer['layer']
    vectors = means[:, number]
    assert layer == retrieval.accuracies(vectors[:5], vectors[5:])
