"""What a plan says of the devices."""

import jax
import pytest

from train.host import chips, device


class Card:
  device_kind, platform = 'NVIDIA V100', 'gpu'
  compute_capability = '7.0'


@pytest.mark.parametrize(
  ('capability', 'dtype', 'warned'),
  [('7.0', 'bfloat16', True), ('7.0', 'float32', False)]
  + [('8.0', 'bfloat16', False), ('12.0', 'bfloat16', False)],
)
def test_an_old_card_has_no_bfloat16(capability, dtype, warned, monkeypatch):
  monkeypatch.setattr(Card, 'compute_capability', capability)
  monkeypatch.setattr(jax, 'devices', lambda: [Card])
  text = device.describe_devices(dtype)
  assert 'x NVIDIA V100' in text
  assert ('--config.model.dtype=float32' in text) == warned


def test_a_cpu_is_told_as_it_is():
  assert device.describe_devices('bfloat16') == f'{jax.device_count()} x cpu'


@pytest.mark.parametrize(
  ('place', 'extra'), [('of_tpu', 'tpu'), ('of_nvidia', 'cuda')]
)
def test_an_accelerator_that_jax_does_not_use_is_told(
  place, extra, monkeypatch
):
  monkeypatch.setattr(chips, place, lambda: ['/dev/here0'])
  assert '/dev/here0' not in device.describe_devices('float32')  # asked for it
  asked = jax.config.jax_platforms
  jax.config.update('jax_platforms', None)
  try:
    text = device.describe_devices('float32')
  finally:
    jax.config.update('jax_platforms', asked)
  assert '/dev/here0' in text
  assert f"pip install -e '.[{extra}]'" in text
