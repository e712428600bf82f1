"""What is set before texts."""

import json
import shutil

import h5py
import numpy as np
import pytest

from train import embed, similarity
from train.exports import sentence_folder
from train.vectors.request import Request
from train.vectors.trained_model import TrainedModel

PROMPT = 'The query: '


@pytest.fixture
def prompted(small_bert, tmp_path):
  """A folder of sentence-transformers with a prompt that is always set."""
  folder = shutil.copytree(small_bert, tmp_path / 'folder')
  form = TrainedModel(small_bert).weights.sentence_form
  assert form is None
  form = sentence_folder.SentenceForm('mean', True, PROMPT)
  sentence_folder.write_settings(folder, form, 32, 64)
  return folder


def unit(folder, texts):
  """Vectors of length 1 without a prompt."""
  found = TrainedModel(folder).vectors(texts, Request('sentence', 'mean'))
  vectors = np.stack([vector.array for vector in found])
  return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_pairs_are_read_behind_the_prompt(prompted, run_command, tmp_path):
  (tmp_path / 'pairs.tsv').write_text('a value\tan object\n')
  files = prompted, tmp_path / 'pairs.tsv'
  done = run_command(similarity, *files, '--json')
  assert f'behind the prompt {PROMPT!r}' in done.err
  for prompt, options in ((PROMPT, ()), ('', ('--pool=mean',))):
    done = run_command(similarity, *files, '--json', *options)
    one, other = unit(prompted, [f'{prompt}a value', f'{prompt}an object'])
    found = json.loads(done.out)['similarity']
    assert found == pytest.approx(one @ other, abs=1e-5)
  assert 'prompt' not in done.err


def test_lines_are_read_behind_the_prompt(prompted, run_command, tmp_path):
  (tmp_path / 'lines.txt').write_text('a value\nan object\n')
  files = prompted, tmp_path / 'lines.txt'
  done = run_command(embed, *files, 'vectors.h5', '--unit=sentence')
  assert f'behind the prompt {PROMPT!r}' in done.err
  with h5py.File(tmp_path / 'vectors.h5') as file:
    found = np.stack([file['0'], file['1']])
  right = unit(prompted, [f'{PROMPT}a value', f'{PROMPT}an object'])
  np.testing.assert_allclose(found, right, rtol=0, atol=1e-6)
  # Tokens are those of the text.
  done = run_command(embed, *files, 'tokens.h5')
  assert 'prompt' not in done.err
