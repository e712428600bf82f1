"""GPUs by name, and steps that their compiler compiles without them."""

import importlib.util

import compile_step
import pytest

from train.host import device
from train.slices import gpus, topology


def test_every_card_has_a_peak_and_a_description():
  for name, card in gpus.CARDS.items():
    assert device.peak_of(card.product), name
    text = gpus._target(card)
    assert text.count('{') == text.count('}')
    assert f'core_count: {card.cores}\n' in text
    assert f'memory_bandwidth: {card.memory_gbps * 1e9:.0f}\n' in text


@pytest.mark.parametrize(
  ('name', 'hint'), [('h100-3', 'h100-'), ('h100', 'h100-'), ('l4-1', 'h100-8')]
)
def test_other_names_are_refused_with_a_hint(name, hint):
  with pytest.raises(ValueError, match=f'--topology {name}: .*{hint}'):
    topology.find(name)


def test_a_missing_compiler_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match=r"compiler is missing: .*'.\[cuda\]'"):
    topology.find('h100-8')


def test_all_names_are_printed(capsys):
  topology.print_names()
  assert (
    'a6000-N, N of NVIDIA RTX A6000: 1, 2, 4, 8\n' in capsys.readouterr().out
  )


@pytest.mark.slow
def test_a_step_on_eight_gpus():
  """Attention in our kernels, parameters gathered, gradients scattered."""
  if not gpus.has_compiler():
    pytest.skip("the GPU's compiler (the extra 'cuda') is not installed")
  rows, length = 64, 128
  step = compile_step.compile_apart(
    'bert_tiny',
    'h100-8',
    {
      'train.phases': [[10, length, rows, 'continue']],
      'eval.global_batch': rows,
      'model.dtype': 'bfloat16',
      'mesh.data': 1,
      'mesh.fsdp': 8,
      'model.unrolled_layers': 0,
    },
  )
  # Two layers in a loop.
  assert sorted(set(step['kernels'])) == [
    'attention_backward',
    'attention_forward',
  ]
  assert not [
    shape
    for shape in step['written']
    if len(shape) > 3 and shape[-2:] == [length, length]
  ]
  assert {'reduce-scatter-start', 'all-gather-start'} <= {*step['started']}
  travelling = {}
  for each in step['collectives']:
    kind = each['kind']
    travelling[kind] = travelling.get(kind, 0) + each['bytes']
  assert travelling['all-reduce'] < 0.01 * travelling['all-gather']
  # Two layers' activations in bfloat16, read and written some twenty times.
  once = 2 * 2 * rows // 8 * length * 128
  assert 20 * once < step['traffic']['bytes'] < 500 * once
