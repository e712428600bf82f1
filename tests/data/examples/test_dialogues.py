"""Dialogues as rows, and what tells a real response from a wrong one."""

import collections
import types

import jax
import numpy as np
import pytest
from dialogue_files import make_dialogues, write_dialogues
from text_stores import build_quietly, make_documents, write_documents

from data.examples import dialogues, pairs, pipeline
from data.store import corpus

LENGTH = 24


@pytest.fixture(scope='module')
def talks():
  found = make_dialogues(60)
  found[7] = [('Q', 'tea'), ('R', 'moon ' * 40), ('Q', 'stone ' * 30)]
  found[8] = [('Q', 'tea ' * 30), ('R', 'river ' * 50)]
  return found


@pytest.fixture(scope='module')
def store(talks, tmp_path_factory):
  """Dialogues 'talk' and other text 'text'."""
  folder = tmp_path_factory.mktemp('talks')
  file = write_dialogues(folder / 'talk.txt', talks)
  text = write_documents(folder / 'text.txt', make_documents(40))
  build_quietly(
    f'talk=dialogue:{file},text={text}',
    'train:wordpiece:200',
    folder / 'store',
    held_out=0.2,
  )
  return corpus.open_store(folder / 'store')


@pytest.fixture(scope='module')
def examples(store):
  return dialogues.DialogueExamples(store, LENGTH, held_out=False)


def test_rows_are_turns_with_their_roles(store, talks, examples):
  turns = examples._turns[0]
  numbers = np.arange(len(turns))
  batch = turns.rows(numbers, np.zeros(len(turns), np.uint64))
  tokenizer = store.tokenizer
  budget = LENGTH - 1 - dialogues.TURNS
  seen = 0
  for number in numbers:
    dialogue, place = turns.dialogue[number], turns._place[number]
    said = talks[dialogue][max(0, place - 2) : place + 1]
    ids = tokenizer.encode_batch([text for _, text in said])
    answer = ids[-1][: budget // 2]
    left, context = budget - len(answer), []
    for turn in ids[-2::-1]:
      turn = turn[max(0, len(turn) - left) :] if left else []
      left -= len(turn)
      context.insert(0, turn)
    kept = [
      (role, turn)
      for (role, _), turn in zip(said, [*context, answer], strict=True)
      if turn
    ]
    expected, roles = [tokenizer.cls_id], [kept[0][0]]
    for role, turn in kept:
      expected += [*turn, tokenizer.sep_id]
      roles += [role] * (len(turn) + 1)
    size = batch['lengths'][number]
    assert batch['window'][number, :size].tolist() == expected
    assert not batch['window'][number, size:].any()
    found = batch['sentence_starts'][number, :size]
    assert ['QR'[role] for role in found.astype(int)] == roles
    assert size <= LENGTH and batch['document_ids'][number] == dialogue
    seen += len(kept) == 3
  assert 0 < seen < len(numbers)
  held_out = dialogues.DialogueExamples(store, LENGTH, held_out=True)._turns[0]
  both = {*turns.dialogue.tolist(), *held_out.dialogue.tolist()}
  assert len(both) == len(talks)
  assert not set(turns.dialogue) & set(held_out.dialogue)


def test_wrong_responses_look_like_real_ones(examples):
  turns = examples._turns[0]
  numbers = np.tile(np.arange(len(turns)), 400)
  draws = np.random.default_rng(0).integers(0, 2**64, len(numbers), np.uint64)
  others = turns.partners(numbers, draws)
  told = others >= 0
  assert told.mean() > 0.8
  real, wrong = numbers[told], others[told]
  assert (turns.dialogue[real] != turns.dialogue[wrong]).all()
  assert (turns._place[wrong] > 0).all()  # no opening of a dialogue
  for form in (turns._shown, turns._is_response(turns.turn)):
    np.testing.assert_array_equal(form[real], form[wrong])
  # As often wrong as real: a response alone tells nothing. In each form, the
  # chance of a response as the wrong one is that of the other dialogues.
  times = np.bincount(wrong, minlength=len(turns))
  forms = collections.defaultdict(list)
  for number in np.unique(real):
    key = turns._shown[number], turns._is_response(turns.turn)[number]
    forms[key].append(number)
  for members in forms.values():
    of = turns.dialogue[members]
    sizes = collections.Counter(of.tolist())
    rest = {name: len(members) - size for name, size in sizes.items()}
    for number, name in zip(members, of.tolist(), strict=True):
      expected = 400 * sum(
        size / rest[other] for other, size in sizes.items() if other != name
      )
      assert abs(times[number] - expected) < 6 * expected**0.5 + 1
  batch = turns.rows(numbers[:500], draws[:500])
  cls_sep = np.isin(batch['window'], turns._symbols)
  np.testing.assert_array_equal(
    cls_sep, np.isin(batch['other_window'], turns._symbols)
  )
  assert (batch['other_document_ids'] < 0).all()
  same = (batch['window'] == batch['other_window']).all(axis=1)
  np.testing.assert_array_equal(batch['other_lengths'] == 0, same)


def test_a_batch_mixes_dialogues_and_pairs(store, examples):
  assert examples.describe_languages()['talk'][0] == len(examples._turns[0])
  phases = ((100, LENGTH, 32, 'continue'),)
  labels, counts = [], []
  for step in range(20):
    batch = pipeline.train_batch({LENGTH: examples}, phases, 3, step)
    shapes = pairs.batch_shapes(LENGTH, 32)
    assert {k: (v.shape, v.dtype) for k, v in batch.items()} == {
      k: (v.shape, v.dtype) for k, v in shapes.items()
    }
    half = pipeline.train_batch(
      {LENGTH: examples}, phases, 3, step, slice(8, 24)
    )
    for name, values in half.items():
      np.testing.assert_array_equal(values, batch[name][8:24])
    talks = batch['other_document_ids'] < 0
    counts.append(talks.mean())
    made = {
      'tokens': np.full((32, LENGTH), 9, np.int32),
      'positions': np.tile(np.arange(LENGTH, dtype=np.int32), (32, 1)),
      'token_types': np.zeros((32, LENGTH), np.int32),
      'token_mask': np.ones((32, LENGTH), bool),
      'nsp_labels': np.zeros(32, np.int32),
      'nsp_weights': np.ones(32, np.float32),
    }
    keys = jax.random.split(jax.random.key(step), 32)
    found = jax.device_get(dialogues.choose_responses(made, batch, keys, pad=0))
    assert (found['tokens'][~talks] == 9).all()
    for row in np.flatnonzero(talks):
      text = ('window', 'other_window')[found['nsp_labels'][row]]
      np.testing.assert_array_equal(
        found['tokens'][row], batch[text][row, :LENGTH]
      )
      size = batch['lengths'][row]
      assert found['token_mask'][row].sum() == size
      assert set(found['token_types'][row, :size]) <= {2, 3}
      assert not found['token_types'][row, size:].any()
      told = batch['other_lengths'][row] > 0
      assert found['nsp_weights'][row] == told
      assert told or not found['nsp_labels'][row]
    labels += found['nsp_labels'][talks & (found['nsp_weights'] > 0)].tolist()
  assert abs(np.mean(labels) - 0.5) < 4 * 0.5 / len(labels) ** 0.5
  share = examples.describe_languages()['talk'][1]
  assert np.mean(counts) == pytest.approx(share, abs=0.01)
  with pytest.raises(ValueError, match="language 'talk' has "):
    examples.check_text(10_000)


def test_units_of_turns_are_marked(tmp_path):
  talk = [('Q', '北京大学很大'), ('R', '我们喜欢北京')]
  talks = [talk * count for count in range(1, 13)]
  file = write_dialogues(tmp_path / 'talk.txt', talks)
  build_quietly(
    f'dialogue:{file}',
    'train:wordpiece:60',
    tmp_path / 'store',
    held_out=0.3,
    unit_source='jieba',
  )
  store = corpus.open_store(tmp_path / 'store')
  examples = dialogues.DialogueExamples(store, 24, held_out=False, units=True)
  phases = ((9, 24, 4, 'continue'),)
  batch = pipeline.train_batch({24: examples}, phases, 0, 0)
  nothing = np.zeros((4, 24), np.int32)
  made = dict.fromkeys(('tokens', 'positions', 'token_types'), nothing)
  made |= {'token_mask': nothing > 0, 'unit_starts': nothing > 0}
  made |= {'positions': np.tile(np.arange(24), (4, 1))}
  made |= {'nsp_labels': nothing[:, 0], 'nsp_weights': nothing[:, 0] * 1.0}
  keys = jax.random.split(jax.random.key(0), 4)
  found = jax.device_get(dialogues.choose_responses(made, batch, keys, pad=0))
  for row, size in enumerate(batch['lengths']):
    text = ''.join(
      ('|' if starts else '') + store.tokenizer.pieces[token].removeprefix('##')
      for token, starts in zip(
        found['tokens'][row, :size],
        found['unit_starts'][row, :size],
        strict=True,
      )
    )
    assert set(text[5:-5].split('[SEP]')) == {
      '|北京大学|很大',
      '|我们|喜欢|北京',
    }


def test_units_of_a_store_without_are_refused(store):
  with pytest.raises(ValueError, match='has no units, which objective.unit'):
    dialogues.Turns(store, LENGTH, 0, held_out=False, units=True)


def test_roles_that_are_no_pieces_are_refused(store):
  class Blind:
    cls_id, sep_id = 1, 2

    def encode_batch(self, texts):
      return [[7] for _ in texts]

  blind = types.SimpleNamespace(**vars(store) | {'tokenizer': Blind()})
  with pytest.raises(
    ValueError, match='no pieces of their own for the roles Q'
  ):
    dialogues.DialogueExamples(blind, LENGTH, held_out=False)
