"""A teacher answers as in predictions, and is refused where it cannot."""

import json
import shutil

import numpy as np
import pytest
from scipy import special
from students import student_of

from train.exports import folders
from train.run import settings
from train.transfer import bodies, finetune, predictors, task_data, teachers

pytestmark = pytest.mark.usefixtures('one_device')


def opened(config, workdir, **changes):
  """Returns the teacher of a small run, and the examples of its dev set."""
  config = student_of(config, workdir, **changes)
  task = task_data.open_task(config)
  return (
    teachers.open_teacher(config, task),
    task_data.read_split(config, task, 'dev'),
  )


@pytest.mark.parametrize('kind', ['own pairs', 'own choices'])
def test_its_outputs_are_the_probabilities_of_predict(run_of, kind):
  config, workdir, _ = run_of(kind)
  teacher, dev = opened(config, workdir)
  found = teachers.compute(teacher, teacher.load(), dev)
  _, _, predictions = predictors.predict([workdir], lambda task: dev)
  np.testing.assert_allclose(
    special.softmax(found.astype(np.float64), axis=-1),
    [prediction.probabilities for prediction in predictions],
    atol=1e-7,
  )


def test_its_scores_and_its_tags_are_those_of_predict(run_of):
  config, workdir, _ = run_of('own scores')
  teacher, dev = opened(config, workdir)
  found = teachers.compute(teacher, teacher.load(), dev)
  _, _, predictions = predictors.predict([workdir], lambda task: dev)
  answers = [prediction.answer for prediction in predictions]
  np.testing.assert_allclose(found[:, 0], answers, rtol=1e-6)

  config, workdir, _ = run_of('own tags')
  teacher, dev = opened(config, workdir)
  found = teachers.compute(teacher, teacher.load(), dev)
  _, _, predictions = predictors.predict([workdir], lambda task: dev)
  # One row a word, of long sentences in several windows too.
  assert len(found) == sum(len(example.words) for example in dev)
  chances = special.softmax(found.astype(np.float64), axis=-1).max(axis=-1)
  told = [chance for each in predictions for chance in each.probabilities]
  np.testing.assert_allclose(chances, told, atol=1e-7)


@pytest.fixture
def exported(run_of, tmp_path):
  """An exported teacher of pairs: the config of its run, and its folder."""
  config, workdir, _ = run_of('own pairs')
  folders.export(workdir, tmp_path / 'exported')
  return config, workdir, tmp_path / 'exported'


def test_an_exported_folder_answers_alike(exported):
  config, workdir, folder = exported
  teacher, dev = opened(config, workdir)
  expected = teachers.compute(teacher, teacher.load(), dev)
  theirs, dev = opened(config, folder)
  found = teachers.compute(theirs, theirs.load(), dev)
  np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_exported_folder_of_other_labels_is_refused(exported):
  config, _, folder = exported
  file = folder / 'config.json'
  content = json.loads(file.read_text())
  content['id2label'] = {'0': 'LABEL_0', '1': 'LABEL_1'}
  file.write_text(json.dumps(content))
  with pytest.raises(ValueError, match=r"found the labels \('LABEL_0', 'LABEL"):
    opened(config, folder)


def test_weights_without_a_head_are_refused(run_of, small_bert):
  config, _, _ = run_of('own pairs')
  with pytest.raises(ValueError, match='init.teacher=.*it has no classifier'):
    opened(config, small_bert)


def refusal(config):
  """Returns the message that refuses a config before any work."""
  with pytest.raises((ValueError, FileNotFoundError)) as error:
    finetune.check_config(config)
    task = task_data.open_task(config)
    bodies.program_of(config).check_files(config, (task,))
  (line,) = str(error.value).splitlines()
  return line


def test_what_cannot_teach_is_refused_by_name(run_of, finished, tmp_path):
  pairs, workdir, _ = run_of('own pairs')
  scores, of_scores, _ = run_of('own scores')
  for config, message in (
    (student_of(pairs, tmp_path / 'none'), 'none'),
    (student_of(pairs, workdir, init__teacher=None), 'init.teacher is empty'),
    (
      student_of(pairs, of_scores),
      "the kind of its task, own, is 'regression'",
    ),
    (student_of(pairs, finished[0]), 'taught no task'),
    (student_of(pairs, workdir, own__labels=('no', 'maybe', 'yes')), 'labels'),
    (
      student_of(scores, of_scores, own__score_range=(0, 6), **SOFT),
      'it has 1 outputs for own, this run 7',
    ),
    (student_of(pairs, workdir, distill__temperature=0.0), 'a positive number'),
    (student_of(pairs, workdir, distill__temperature=-1.0), 'temperature=-1'),
    (student_of(pairs, workdir, distill__label_weight=1.5), '[0, 1]'),
    (student_of(pairs, workdir, distill__loss='cosine'), 'distill.loss='),
    (student_of(pairs, workdir, distill__text='none.txt'), 'distill.text=none'),
    (student_of(pairs, workdir, init__layers='first:9'), 'init.layers='),
    (
      student_of(pairs, workdir, init__layers='every:2', model__embed_dim=768),
      'model.embed_dim=768',
    ),
  ):
    assert message in refusal(config), message
  # A run that is not finished.
  half = shutil.copytree(workdir, tmp_path / 'half')
  (half / 'task.json').unlink()
  assert 'the run is not finished' in refusal(student_of(pairs, half))


SOFT = {'task__soft_classes': 7}


def test_a_teacher_of_paths_is_refused(run_of, tmp_path):
  config, workdir, _ = run_of('own tags')
  other = shutil.copytree(workdir, tmp_path / 'paths')
  text = settings.as_json(config)
  text = text.replace('"crf": ""', '"crf": "viterbi"')
  (other / 'config.json').write_text(text)
  assert 'read as paths' in refusal(student_of(config, other))
  assert 'task.crf=' in refusal(student_of(config, workdir, task__crf='iob2'))


def test_spans_need_the_rows_of_the_teacher(run_of):
  config, workdir, _ = run_of('own questions')
  changed = student_of(config, workdir, task__max_length=24)
  assert 'task.max_length=32, this run 24' in refusal(changed)


def test_spans_need_the_vocabulary_of_the_teacher(run_of, small_bert, tmp_path):
  config, workdir, _ = run_of('own questions')
  other = shutil.copytree(small_bert, tmp_path / 'other')
  for file in other.glob('tokenizer*.json'):
    file.unlink()
  words = (other / 'vocab.txt').read_text().splitlines()
  words[-2:] = words[:-3:-1]  # two change places
  (other / 'vocab.txt').write_text('\n'.join(words) + '\n')
  changed = student_of(config, workdir, init__weights=str(other))
  line = refusal(changed)
  assert 'its vocabulary is another one' in line and 'init.teacher=' in line


def test_outputs_are_kept_whole_or_refused(tmp_path):
  outputs = np.arange(6, dtype=np.float32).reshape(3, 2)
  assert teachers.KeptOutputs.read(tmp_path) is None
  kept = teachers.KeptOutputs(outputs, 'a' * 64, 'b' * 64)
  kept.write(tmp_path)
  found = teachers.KeptOutputs.read(tmp_path)
  np.testing.assert_array_equal(found.outputs, outputs)
  assert found.source == kept.source and found.digest == kept.digest
  file = tmp_path / teachers.OUTPUTS_FILE
  file.write_bytes(file.read_bytes()[:-30])
  with pytest.raises(ValueError, match='teacher.npz is damaged'):
    teachers.KeptOutputs.read(tmp_path)
