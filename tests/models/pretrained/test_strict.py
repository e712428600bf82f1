"""Numbers of other precisions, and those that are none."""

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors

from models.pretrained import published


def test_half_precision_and_numbers_that_are_none(torch, released, tmp_path):
  _, theirs, params = released
  for dtype in ('bfloat16', 'float16'):
    folder = tmp_path / dtype
    theirs.to(getattr(torch, dtype)).save_pretrained(folder)
    found = published.open_folder(folder).load()
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=2**-8, atol=1e-6),
      found,
      params,
    )
    theirs.float()
  arrays = safetensors.load_file(folder / 'model.safetensors')
  arrays['bert.pooler.dense.weight'][3, 2] = np.inf
  safetensors.save_file(arrays, folder / 'model.safetensors')
  with pytest.raises(
    ValueError, match='pooler.dense.weight holds numbers that'
  ):
    published.open_folder(folder).load()
