"""Slices by name: the layouts that Cloud TPU documents."""

import importlib.util

import pytest

from train.slices import topology

# Cloud TPU's documentation, "TPU configurations" of each generation.
LAYOUTS = {
  'v2-8': (2, 2),
  'v3-8': (2, 2),
  'v3-32': (4, 4),
  'v3-128': (8, 8),
  'v3-256': (8, 16),
  'v3-1024': (16, 32),
  'v3-2048': (32, 32),
  'v4-8': (2, 2, 1),
  'v4-16': (2, 2, 2),
  'v4-32': (2, 2, 4),
  'v4-64': (2, 4, 4),
  'v4-512': (4, 8, 8),
  'v5litepod-1': (1, 1),
  'v5litepod-8': (2, 4),
  'v5litepod-16': (4, 4),
  'v5e-32': (4, 8),
  'v5e-256': (16, 16),
  'v5p-8': (2, 2, 1),
  'v5p-32': (2, 2, 4),
  'v5p-1024': (8, 8, 8),
  'v6e-128': (8, 16),
  'tpu7x-8': (2, 2, 1),
  'tpu7x-64': (2, 4, 4),
  'tpu7x:4x4x4': (4, 4, 4),
  'v5e:4x4': (4, 4),
  'v4:2x4x4': (2, 4, 4),
}


@pytest.mark.parametrize('name', LAYOUTS)
def test_layouts_are_those_documented(name):
  generation, layout = topology.parse(name)
  assert layout == LAYOUTS[name]
  assert len(layout) == generation.dimensions


@pytest.mark.parametrize(
  'name, hint',
  [
    ('v5e-17', 'v5e-16'),
    ('v4-33', 'v4-32'),
    ('v5litepod-512', 'v5litepod-'),
    ('v3-16', 'v3-'),
    ('tpu7x-9', 'tpu7x-8'),
    ('tpu', 'v5litepod-16'),
    ('v5e:4x4x4', '2 dimensions'),
    ('v5e:32x32', 'at most 256 chips'),
    ('v4:4x4', '3 dimensions'),
    ('v5e:0x4', 'at most 256 chips'),
  ],
)
def test_other_names_are_refused_with_a_hint(name, hint):
  with pytest.raises(ValueError, match=f'--topology {name}: .*{hint}'):
    topology.parse(name)


def test_a_missing_compiler_is_named(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match=r"libtpu, is missing: .*'.\[tpu\]'"):
    topology.find('v5e-16')


def test_every_name_means_a_slice():
  for name in topology.names():
    assert topology.parse(name)[1]


def test_all_names_are_printed(capsys):
  topology.print_names()
  printed = capsys.readouterr().out
  assert 'v5e-N, N chips: 1, 4, 8, 16, 32, 64, 128, 256\n' in printed
  assert 'tpu7x-N, N cores, 2 a chip: 8, 16, ' in printed
