"""The audit of a store."""

import numpy as np

from data.store import audit as audits


def test_summary_matches_numpy():
  import collections

  lengths = np.random.default_rng(0).integers(1, 300, 1001)
  found = audits.summarise(collections.Counter(lengths.tolist()))
  for name, share in {'min': 0, 'p5': 0.05, 'median': 0.5, 'p95': 0.95}.items():
    assert found[name] == np.quantile(lengths, share, method='inverted_cdf')
  assert found['max'] == lengths.max()
  assert sum(found['histogram'].values()) == 1001
  assert found['histogram']['64-127'] == np.sum(
    (lengths >= 64) & (lengths < 128)
  )
