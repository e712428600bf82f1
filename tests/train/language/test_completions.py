"""Texts that models go on writing, from the command's side."""

import json
import sys

import jax
import numpy as np
import pytest
from small_gpt import small_trained

from models.decoding import Sampling
from train import generate
from train.language import completions
from train.vectors import trained_model
from train.vectors.trained_model import TrainedModel


@pytest.fixture(scope='module')
def found():
  return small_trained()


@pytest.fixture(scope='module', params=['gpt', 'gpt2'])
def either(request):
  return small_trained(request.param)


PROMPTS = ['The cat', 'A much longer beginning of a text', 'x', 'Two words']


@pytest.mark.slow
@pytest.mark.parametrize('new', [12, 70], ids=['fits', 'slides'])
def test_a_batch_is_each_prompt_alone(either, new):
  found = either
  options = dict(max_new_tokens=new, sampling=Sampling(), seed=3, samples=2)
  options['overflow'] = 'slide'
  together = completions.complete(found, PROMPTS, batch=8, **options)
  for batch in (1, 3):
    assert (
      completions.complete(found, PROMPTS, batch=batch, **options) == together
    )
  assert len(together) == 8
  assert len({completion.text for completion in together}) > 4
  assert together != completions.complete(
    found, PROMPTS, batch=8, **options | {'seed': 4}
  )
  # A prompt alone is what it is among others.
  alone = completions.complete(found, PROMPTS[2:3], **options)
  assert alone == together[4:6]


def test_greedy_is_the_likeliest_token_of_the_full_pass(found):
  (written,) = completions.complete(found, PROMPTS[:1], max_new_tokens=10)
  (ids,) = found.tokenizer.encode_batch(PROMPTS[:1])
  places = np.arange(found.model.max_length)[None]
  forward = jax.jit(
    lambda tokens, mask: found.model.apply(
      {'params': found.params}, tokens, mask, places, train=False
    )['lm_logits']
  )
  for _ in range(10):
    tokens = np.zeros_like(places)
    tokens[0, : len(ids)] = ids
    logits = forward(tokens, places < len(ids))[0, len(ids) - 1]
    ids.append(int(logits[: found.tokenizer.vocab_size].argmax()))
  assert written.tokens == ids[-10:]
  assert written.text == found.tokenizer.decode(ids[-10:])
  assert written.finish == 'length'


def test_stop_strings_are_cut_off_and_streams_add_up(found):
  options = dict(max_new_tokens=40, sampling=Sampling(top_k=50), seed=1)
  (whole,) = completions.complete(found, PROMPTS[:1], **options)
  stop = whole.text[10:12]
  parts = []
  (cut,) = completions.complete(
    found, PROMPTS[:1], stop=[stop, 'never'], show=parts.append, **options
  )
  assert cut.finish == 'stop'
  assert cut.text == whole.text[: whole.text.index(stop)]
  assert ''.join(parts) == cut.text
  # The last token is the one that completed the stop.
  decode = found.tokenizer.decode
  assert stop in decode(cut.tokens) and stop not in decode(cut.tokens[:-1])
  parts.clear()
  completions.complete(found, PROMPTS[:1], show=parts.append, **options)
  assert ''.join(parts) == whole.text
  assert len(parts) > 1


def test_a_text_begins_after_the_symbol_that_ends_one(found):
  assert found.encode(['a<|endoftext|>']) == [
    [*found.tokenizer.encode_batch(['a'])[0], found.tokenizer.end_of_text_id]
  ]
  (written,) = completions.complete(found, ['<|endoftext|>'], max_new_tokens=5)
  assert written.text == found.tokenizer.decode(written.tokens)


def test_a_continuation_is_set_apart_as_words_are():
  found = small_trained('gpt')
  (ids,) = found.tokenizer.encode_batch(['the value of'])
  (written,) = completions.complete(found, ['the value of'], max_new_tokens=5)
  whole = found.tokenizer.decode([*ids, *written.tokens])
  assert 'the value of' + written.text == whole


def test_long_prompts_are_refused_or_slid(found):
  room = found.model.max_length + 1
  text = 'word ' * room
  with pytest.raises(ValueError, match=r'prompt 2 has .* --overflow slide'):
    completions.complete(found, ['x', text], max_new_tokens=5)
  (slid,) = completions.complete(
    found, [text], max_new_tokens=5, overflow='slide'
  )
  # What is left of the prompt is its end.
  (ids,) = found.tokenizer.encode_batch([text])
  tokenizer = FixedTokens(found.tokenizer, ids[-(room - 5) :])
  tail = TrainedModel(found.weights._replace(tokenizer=tokenizer), use=None)
  (expected,) = completions.complete(tail, [text], max_new_tokens=5)
  assert slid.tokens == expected.tokens
  # More new tokens than positions.
  (long,) = completions.complete(
    found, ['x'], max_new_tokens=3 * room, overflow='slide'
  )
  assert len(long.tokens) == 3 * room


class FixedTokens:
  """A tokenizer that gives the same ids to any text."""

  def __init__(self, tokenizer, ids):
    self._tokenizer, self._ids = tokenizer, ids

  def encode_batch(self, texts):
    return [self._ids for _ in texts]

  def decode(self, ids):
    return self._tokenizer.decode(ids)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'prompts': ['a', '']}, 'prompt 2 is empty'),
    ({'max_new_tokens': 0}, 'max_new_tokens=0 .* expected 1 or more of each'),
    ({'stop': ['']}, '--stop is empty'),
    ({'samples': 0}, '--samples=0 .* expected 1 or more of each'),
    ({'seed': -1}, '--seed=-1: expected 0 to'),
    ({'seed': 1 << 32}, 'expected 0 to 4,294,967,295'),
  ],
)
def test_bad_input_is_refused(found, options, message):
  options = {'prompts': ['a'], 'max_new_tokens': 3} | options
  with pytest.raises(ValueError, match=message):
    completions.complete(found, **options)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'temperature': -1.0}, 'temperature is -1.0'),
    ({'temperature': 1e-9}, r'expected 0 \(greedy\) or at least 1e-06'),
    ({'top_p': 0.0}, 'top_p is 0.0, expected a share in'),
    ({'top_p': 1.5}, 'top_p is 1.5'),
    ({'top_k': -1}, 'top_k is -1'),
  ],
)
def test_bad_sampling_is_refused(options, message):
  with pytest.raises(ValueError, match=message):
    Sampling(**options)


def test_command(found, tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(trained_model, 'TrainedModel', lambda *_, **__: found)
  arguments = '--max_new_tokens 5 --temperature 0'.split()

  def run(*more):
    monkeypatch.setattr(sys, 'argv', ['generate', 'W', *arguments, *more])
    generate.main()
    return capsys.readouterr().out

  (expected,) = completions.complete(found, ['The cat'], max_new_tokens=5)
  assert run('--prompt', 'The cat') == f'The cat{expected.text}\n'
  record = json.loads(run('--prompt', 'The cat', '--json'))
  assert record == {'prompt': 'The cat', **expected._asdict()}
  path = tmp_path / 'out.jsonl'
  source = tmp_path / 'in.jsonl'
  source.write_text('{"prompt": "The cat", "id": 1}\n{"prompt": "x"}\n')
  said = run('--input', str(source), '--output', str(path))
  assert said == f'2 texts are in {path}\n'
  first, second = map(json.loads, path.read_text().splitlines())
  assert first == {'prompt': 'The cat', 'id': 1, **expected._asdict()}
  assert second['prompt'] == 'x' and len(second['tokens']) == 5
