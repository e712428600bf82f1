"""A small BERT learns masked tokens from a large one."""

import os
import signal

import jax
import numpy as np
import pytest
import runs
import safetensors.numpy
from flax import linen as nn

from configs import variants
from train.exports import folders
from train.host import processes
from train.pretrain import distillation, job
from train.run import checkpoint, ledger, metrics, settings

PUBLISHED = ('soft', 'mlm', 'cosine')  # DistilBERT's losses
RELATIONS = {'distill__relation_weight': 1.0, 'distill__relation_heads': 8}
pytestmark = pytest.mark.usefixtures('one_device')


@pytest.fixture(scope='module')
def student(finished, small_config):
  """Returns a function (overrides) -> config of a student of seconds."""

  def make(**overrides):
    begun = settings.load_config('distilbert')
    taken = {
      key: value
      for key, value in settings.flatten(small_config()).items()
      if value is not None and key != 'train.objective'
    }
    taken |= {
      'model.num_layers': 1,
      'train.phases': ((4, 32, 16, 'continue'),),
      'train.log_every': 1,
      'train.checkpoint_every': 4,
      'train.eval_every': 4,
      'init.teacher': str(finished[0]),
    }
    changes = {key.replace('__', '.'): v for key, v in overrides.items()}
    return settings.with_overrides(begun, taken | changes)

  return make


def rows_of(workdir, name):
  return [v for _, key, v in metrics.read_metrics(workdir) if key == name]


def test_losses_are_those_of_plain_loops(student):
  from train.architectures.architecture import Vocabulary

  config = student(distill__temperature=3.0)
  objective = distillation.DistilledTokens(config, 8, Vocabulary.of_size(11))
  objective.taught = {}
  rng = np.random.default_rng(1)
  logits, theirs = rng.normal(size=(2, 2, 3, 128)).astype(np.float32)
  hidden, other = rng.normal(size=(2, 2, 8, 32)).astype(np.float32)
  batch = {
    'mlm_targets': np.array([[1, 2, 0], [4, 0, 0]]),
    'mlm_weights': np.float32([[1, 1, 0], [1, 0, 0]]),
    'token_mask': np.arange(8) < np.array([[8], [5]]),
    'example_mask': np.array([True, True]),
  }
  outputs = {
    'mlm_logits': logits,
    'hidden': hidden,
    'teacher': distillation.TeacherOutputs(theirs, other),
  }
  sums, _ = objective.losses(outputs, batch)
  totals = objective.weights(batch)

  def log_softmax(x):
    return x - np.log(np.exp(x).sum())

  expected = {'soft': [], 'mlm': [], 'cosine': []}
  for b, p in ((0, 0), (0, 1), (1, 0)):
    s, t = (np.float64(x[b, p, :11]) for x in (logits, theirs))
    ours, target = log_softmax(s / 3), log_softmax(t / 3)
    expected['soft'].append(9 * (np.exp(target) * (target - ours)).sum())
    whole = log_softmax(np.float64(logits[b, p]))
    expected['mlm'].append(-whole[batch['mlm_targets'][b, p]])
  for b, t in zip(*np.nonzero(batch['token_mask']), strict=True):
    x, y = np.float64(hidden[b, t]), np.float64(other[b, t])
    expected['cosine'].append(1 - x @ y / np.sqrt((x @ x) * (y @ y)))
  for name, factor in (('soft', 5), ('mlm', 2), ('cosine', 1)):
    np.testing.assert_allclose(
      sums[name][0] / totals[name], factor * np.mean(expected[name]), rtol=1e-5
    )


def test_relations_are_those_of_plain_loops(student):
  """Of a student and a teacher of other widths."""
  from train.architectures.architecture import Vocabulary

  R, lengths = 2, (4, 3)
  config = student(
    distill__soft_weight=0.0,
    distill__cosine_weight=0.0,
    distill__relation_weight=3.0,
    distill__relation_heads=R,
  )
  objective = distillation.DistilledTokens(config, 8, Vocabulary.of_size(11))
  objective.taught = {}
  rng = np.random.default_rng(1)
  ours = rng.normal(size=(3, 2, 4, 4)).astype(np.float32)
  theirs = rng.normal(size=(3, 2, 4, 6)).astype(np.float32)
  batch = {
    'mlm_targets': np.zeros((2, 1), int),
    'mlm_weights': np.ones((2, 1), np.float32),
    'token_mask': np.arange(4) < np.array(lengths)[:, None],
    'example_mask': np.array([True, True]),
  }
  outputs = {
    'mlm_logits': np.zeros((2, 1, 128), np.float32),
    'projections': [*ours],
    'teacher': distillation.TeacherOutputs(None, None, [*theirs]),
  }
  sums, _ = objective.losses(outputs, batch)

  def shares(x, row, head, t):
    width = x.shape[-1] // R
    part = np.float64(x[row, : lengths[row], head * width : (head + 1) * width])
    powers = np.exp(part @ part[t] / np.sqrt(width))
    return powers / powers.sum()

  values = [
    sum(
      (q * np.log(q / shares(a, row, head, t))).sum()
      for a, b in zip(ours, theirs, strict=True)
      for head in range(R)
      for q in [shares(b, row, head, t)]
    )
    / R
    for row in (0, 1)
    for t in range(lengths[row])
  ]
  total = objective.weights(batch)['relation']
  np.testing.assert_allclose(
    sums['relation'][0] / total, 3 * np.mean(values), rtol=1e-5
  )


def test_projections_are_what_attention_reads(torch):
  """As transformers' layer makes them."""
  transformers = pytest.importorskip('transformers')
  from models import bert
  from models.pretrained import hugging_face

  model = bert.Bert(
    vocab_size=50,
    num_layers=2,
    embed_dim=32,
    num_heads=2,
    mlp_dim=64,
    max_length=16,
    heads=('pooler',),
  )
  tokens = np.arange(12).reshape(2, 6)
  inputs = tokens, tokens > -1, 0 * tokens, np.arange(6) + 0 * tokens
  shapes = jax.eval_shape(
    lambda: model.init(jax.random.key(0), *inputs, train=False)
  )
  rng = np.random.default_rng(0)
  params = jax.tree.map(
    lambda leaf: rng.normal(0, 0.2, leaf.shape).astype('f4'),
    nn.unbox(shapes)['params'],
  )
  outputs = model.apply(
    {'params': params}, *inputs, train=False, all_layers=True
  )
  found = bert.projections(params, outputs['layers'], 1)
  config = hugging_face.pretrained_bert.to_config(model)
  theirs = transformers.BertModel(transformers.BertConfig(**config)).eval()
  _, arrays = hugging_face.pretrained_bert.to_hugging_face(params, model)
  weights = {
    name.removeprefix('bert.'): torch.tensor(np.array(array))
    for name, array in arrays.items()
  }
  theirs.load_state_dict(weights, strict=False)
  own = theirs.encoder.layer[1].attention.self
  made = {}
  for name in ('query', 'key', 'value'):
    getattr(own, name).register_forward_hook(
      lambda _, args, output, name=name: made.update({name: output})
    )
  theirs(input_ids=torch.tensor(tokens))
  for ours, name in zip(found, made, strict=True):
    np.testing.assert_allclose(ours, made[name].detach(), atol=1e-5)


@pytest.fixture(scope='module')
def taught(student, tmp_path_factory):
  """A finished student: config, workdir, results."""
  workdir = tmp_path_factory.mktemp('students') / 'student'
  return student(), workdir, runs.train(student(), workdir)


def test_it_has_each_loss_and_is_scored_by_its_own(taught):
  _, workdir, results = taught
  for name in PUBLISHED:
    assert len(rows_of(workdir, f'train/{name}_loss')) == 4
  assert results['metrics']['eval/mlm_perplexity'] > 1
  assert 'eval/soft_loss' not in results['metrics']
  losses = rows_of(workdir, 'train/loss')
  parts = zip(
    *(rows_of(workdir, f'train/{name}_loss') for name in PUBLISHED),
    strict=True,
  )
  np.testing.assert_allclose(
    losses, [5 * a + 2 * b + c for a, b, c in parts], rtol=1e-5
  )


def test_ended_it_goes_on_to_the_same_bits(taught, tmp_path, monkeypatch):
  config, _, expected = taught
  count = ledger.Ledger.count

  def count_and_ask(self, step, *rest):
    if step == 2:
      os.kill(os.getpid(), signal.SIGTERM)
    count(self, step, *rest)

  with monkeypatch.context() as patch:
    patch.setattr(ledger.Ledger, 'count', count_and_ask)
    with pytest.raises(processes.Preempted):
      runs.train(config, tmp_path)
  assert checkpoint.latest_step(tmp_path) == 2
  results = runs.train(config, tmp_path)
  for key in ('state_sha256', 'optimizer_sha256', 'metrics'):
    assert results[key] == expected[key]


@pytest.mark.slow
def test_its_teacher_has_nothing_to_teach_itself(student, finished, tmp_path):
  config = student(
    init__weights=str(finished[0]),
    init__layers='all',
    model__num_layers=2,
    model__dropout_rate=0.0,
    model__attention_dropout_rate=0.0,
    distill__mlm_weight=0.0,
    distill__relation_weight=1.0,
    distill__relation_heads=4,
    train__micro_batches=2,
    train__steps=1,
  )
  runs.train(config, tmp_path / 'run')
  for name in ('soft', 'cosine', 'relation'):
    (loss,) = rows_of(tmp_path / 'run', f'train/{name}_loss')
    assert abs(loss) < 1e-5


def test_a_modern_bert_teaches(student, small_config, tmp_path):
  """All of it: so it has nothing to teach a student with its parameters."""
  form = {
    key: value
    for key, value in variants.MODERN.items()
    if key.startswith('model.')
  }
  one_step = {'train.phases': ((1, 32, 16, 'continue'),)}
  teacher = settings.with_overrides(
    small_config(), form | one_step | {'train.objective': 'mlm'}
  )
  runs.train(teacher, tmp_path / 'teacher')
  config = settings.with_overrides(
    student(
      init__teacher=str(tmp_path / 'teacher'),
      init__weights=str(tmp_path / 'teacher'),
      init__layers='all',
      model__num_layers=2,
    ),
    form | one_step,
  )
  runs.train(config, tmp_path / 'run')
  for name in ('soft', 'cosine'):
    (loss,) = rows_of(tmp_path / 'run', f'train/{name}_loss')
    assert abs(loss) < 1e-5, name


def test_what_cannot_teach_is_refused_by_name(
  student, small_bert, small_config, tmp_path
):
  for changes, message in (
    ({'init__teacher': None}, 'init.teacher is empty'),
    ({'init__teacher': '/nowhere'}, '/nowhere'),
    ({'init__teacher': str(small_bert)}, 'has no MLM head'),
    ({'model__embed_dim': 64}, 'model.embed_dim=64: init.teacher='),
    ({'distill__temperature': 0.0}, 'distill.temperature=0.0'),
    ({'distill__soft_weight': -1.0}, 'distill.soft_weight=-1.0'),
    (
      {'distill__soft_weight': 0.0, 'distill__cosine_weight': 0.0},
      'the teacher teaches nothing',
    ),
    (
      {'distill__relation_weight': 1.0},
      'distill.relation_heads=48, expected a divisor of 32, model.embed_dim',
    ),
    (
      RELATIONS | {'distill__relation_layer': 3},
      'distill.relation_layer=3, but',
    ),
    (RELATIONS | {'model__norm': 'pre'}, "but model.norm is 'pre'"),
    ({'train__objective': 'mlm'}, "train.objective='mlm': expected 'distil'"),
    (
      {'model__max_length': 128, 'train__phases': ((2, 128, 8, 'continue'),)},
      'length 128, but init.teacher=',
    ),
  ):
    with pytest.raises((ValueError, OSError), match=message) as error:
      runs.train(student(**changes), tmp_path / 'new')
    assert len(str(error.value).splitlines()) == 1
  plain = small_config(train__objective='distil')
  with pytest.raises(ValueError, match="train.objective='distil'"):
    runs.train(plain, tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


def test_hidden_states_and_relations_need_no_head(student, finished, tmp_path):
  """A teacher may be a sentence encoder: with its MLM head it is the same."""
  bare = tmp_path / 'bare'
  folders.export(finished[0], bare)
  kept = safetensors.numpy.load_file(bare / 'model.safetensors')
  kept = {name: a for name, a in kept.items() if not name.startswith('cls.')}
  safetensors.numpy.save_file(kept, bare / 'model.safetensors')
  found = []
  for teacher in (bare, finished[0]):
    config = student(
      init__teacher=str(teacher),
      distill__soft_weight=0.0,
      distill__mlm_weight=0.0,
      train__steps=1,
      **RELATIONS,
    )
    workdir = tmp_path / f'of_{teacher.name}'
    runs.train(config, workdir)
    found.append(
      [rows_of(workdir, f'train/{n}_loss') for n in ('cosine', 'relation')]
    )
  assert all(found[0])
  np.testing.assert_allclose(*found, rtol=1e-6)


def test_another_vocabulary_is_refused(student, finished, tmp_path):
  other = tmp_path / 'other'
  folders.export(finished[0], other)
  for name in ('tokenizer.json', 'tokenizer_config.json'):
    (other / name).unlink()
  words = (other / 'vocab.txt').read_text().splitlines()
  words[-2:] = words[:-3:-1]  # two change places
  (other / 'vocab.txt').write_text('\n'.join(words) + '\n')
  with pytest.raises(ValueError, match='its vocabulary is another one'):
    runs.train(student(init__teacher=str(other)), tmp_path / 'new')
  store = tmp_path / 'store'
  anew = {'data__folder': str(store), 'data__tokenizer': 'train:wordpiece:99'}
  with pytest.raises(ValueError, match='data.tokenizer=train:wordpiece:99'):
    runs.train(student(**anew), tmp_path / 'new')
  assert not store.exists()  # found before the text is read


def test_flops_of_a_step_count_the_teacher(student, small_config, tmp_path):
  def flops(config):
    made = job.make(config, tmp_path / 'run')
    return made.work(0, {})[1]

  phases = ((4, 32, 16, 'continue'),)
  alone, teacher = (
    flops(small_config(train__objective='mlm', train__phases=phases, **changes))
    for changes in ({'model__num_layers': 1}, {})
  )
  assert flops(student()) == alone + teacher // 3  # it is not trained


@pytest.mark.slow
def test_a_narrower_student_needs_no_cosine(student, tmp_path):
  config = student(
    model__embed_dim=16,
    model__mlp_dim=32,
    distill__cosine_weight=0.0,
    train__steps=1,
  )
  runs.train(config, tmp_path / 'run')
  assert rows_of(tmp_path / 'run', 'train/soft_loss')
  assert not rows_of(tmp_path / 'run', 'train/cosine_loss')
