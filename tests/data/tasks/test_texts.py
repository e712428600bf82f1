"""A task's training texts as a source of text."""

import pytest

from data.store import build, texts
from data.text import manual

GLUE = {
  'MRPC/train.tsv': (
    'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n'
    '1\t1\t2\tA b.\tC "d.\n0\t3\t4\tE.\tF.\n1\t1\t2\tA b.\tC "d.\n'
  ),
  'squad/train-v1.1.json': (
    '{"data": [{"title": "t", "paragraphs": [{"context": "Ann ran.", "qas": ['
    '{"id": "1", "question": "Who?", "answers": [{"text": "Ann",'
    ' "answer_start": 0}]}, {"id": "2", "question": "What?", "answers":'
    ' [{"text": "ran", "answer_start": 4}]}]}]}]}'
  ),
  'swag/train.csv': (
    'video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,'
    'ending2,ending3,label\n'
    'v,1,She sits. He,She sits.,He,gold,eats.,runs.,flies.,swims.,1\n'
  ),
  'panx/train-en.tsv': 'en:Ann\tB-PER\nen:ran\tO\n\n',
  'panx/train-zh.tsv': 'zh:他\tO\nzh:在\tO\nzh:IBM\tO\nzh:a\tO\nzh:。\tO\n\n',
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('sets')
  for name, text in GLUE.items():
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
  return folder


@pytest.mark.parametrize(
  ('task', 'documents', 'dropped'),
  [
    ('mrpc', ['A b.\n\nC "d.', 'E.\n\nF.'], 1),
    ('squad1', ['Ann ran.'], 1),
    ('swag', ['She sits.\n\nHe\n\nruns.'], 0),
    ('panx_en', ['Ann ran'], 0),
    ('panx_zh', ['他在 IBM a 。'], 0),
  ],
)
def test_each_example_is_a_document(
  folder, task, documents, dropped, monkeypatch
):
  monkeypatch.setattr(manual, 'documents', lambda: (('A topic.',), {}))
  source = texts.open_source(f'task:{task}:{folder}')
  pieces = list(source.pieces())
  assert [piece.text for piece in pieces] == documents
  assert all(piece.ends_document for piece in pieces)
  assert source.dropped['text of an earlier example'] == dropped
  again = texts.open_source(f'task:{task}:{folder}')
  assert again.fingerprint == source.fingerprint
  named = texts.open_source(f'aa=task:{task}:{folder},bb=manual')
  assert next(named.pieces()).text == documents[0]


def test_wrong_sources_are_told(folder):
  for spec, message in (
    ('task:mrpc', 'expected task:NAME:FOLDER'),
    (f'task:mrcp:{folder}', "found no task 'mrcp'"),
    (f'task:rte:{folder}', 'task rte: found no train.tsv'),
  ):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
      texts.open_source(spec)
  with pytest.raises(ValueError, match='each of its examples is a document'):
    texts.open_source(f'task:mrpc:{folder}', document_break='file')


def test_a_store_of_a_tasks_texts(sesame_data, tmp_path):
  spec = f'task:mrpc:{sesame_data / "glue"}'
  audit = build.build_store(
    spec, 'train:wordpiece:500', tmp_path / 'store', progress=False, workers=1
  )
  # Pairs of the training set, of which one comes twice.
  assert (
    audit['documents'] + audit['dropped'].get('text of an earlier example', 0)
    == 3667
  )
