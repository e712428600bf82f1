"""Model cards: data, steps, scores, licence, revision."""

import json

import pytest

from train.exports import exported, folders, model_card
from train.params import opened


def card(folder, **asked):
  request = exported.ExportRequest(**asked)
  plan = exported.plan(opened.open_weights(folder), request)
  return model_card.text(plan, 'new', 'BertModel')


def test_a_run_is_described(finished, tmp_path):
  workdir, results = finished
  folders.export(workdir, tmp_path / 'new')
  text = (tmp_path / 'new/README.md').read_text()
  lines = text.splitlines()
  assert lines[:4] == [
    '---',
    'license: unknown',
    'library_name: transformers',
    'pipeline_tag: fill-mask',
  ]
  for line in (
    '# new',
    '| data | story.txt |',
    f'| steps | {results["steps"]} |',
    f'| seed | {results["seed"]} |',
    f'| revision of the code | {results["revision"]} |',
    f'| digest of the parameters | {results["state_sha256"]} |',
    f'| mlm_loss | {results["metrics"]["eval/mlm_loss"]:.4g} |',
    "model = transformers.BertForPreTraining.from_pretrained('new')",
    'Not told. It depends on the text and the weights of the training.',
  ):
    assert line in lines
  # Whose machine it was is nobody's business.
  assert '/' not in text.partition('## Training')[2].partition('## Scores')[0]


def test_a_licence_is_given_or_taken_over(small_bert, tmp_path):
  assert 'license: unknown' in card(small_bert)
  assert 'license: mit' in card(small_bert, licence='mit')
  folders.export(
    small_bert, tmp_path / 'one', request=exported.ExportRequest(licence='mit')
  )
  assert 'license: mit' in card(tmp_path / 'one')
  assert 'license: gpl-3.0' in card(tmp_path / 'one', licence='gpl-3.0')
  (tmp_path / 'one/README.md').write_text('license: mit')  # no front matter
  assert 'license: unknown' in card(tmp_path / 'one')


@pytest.mark.parametrize(
  ('name', 'line'),
  [
    ('bert', 'pipeline_tag: feature-extraction'),
    ('BertForMaskedLM', 'pipeline_tag: fill-mask'),
    ('gpt', 'pipeline_tag: text-generation'),
    ('elmo', 'options.json and lm_weights.hdf5 are read by the released'),
  ],
)
def test_families_are_described(published, name, line):
  text = card(published[name])
  assert line in text
  assert 'Published weights (' in text


def test_the_code_of_a_card_runs(published, tmp_path, monkeypatch):
  """Of transformers; other tests run that of the other programs."""
  monkeypatch.chdir(tmp_path)
  folders.export(published['BertForMaskedLM'], 'new')
  text = (tmp_path / 'new/README.md').read_text()
  code = text.partition('```python\n')[2].partition('```')[0]
  names = {}
  exec(code, names)
  assert type(names['model']).__name__ == 'BertForMaskedLM'
  config = json.loads((tmp_path / 'new/config.json').read_text())
  assert (
    names['tokenizer'].model_max_length == config['max_position_embeddings']
  )
