"""The tests' own cache: what is pruned, and what is the user's."""

import os
import time

import program_cache
import pytest


@pytest.mark.parametrize(
  ('cache', 'removed'),
  [
    ('named', {'named/old-cache'}),
    (
      'sesame/test_programs/a',
      {'sesame/test_programs/a/old-cache', 'sesame/test_programs/b/old-cache'},
    ),
  ],
)
def test_only_old_entries_of_caches_are_removed(cache, removed, tmp_path):
  files = {
    f'{folder}/{name}'
    for folder in (
      'named',
      'letters',
      'sesame/xla',
      'sesame/test_programs/a',
      'sesame/test_programs/b',
    )
    for name in ('old-cache', 'new-cache', 'old.txt')
  }
  for name in files:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    if 'old' in path.name:
      long_ago = time.time() - 100 * 86_400
      os.utime(path, (long_ago, long_ago))
  program_cache.prune(tmp_path / cache)
  left = {
    str(path.relative_to(tmp_path))
    for path in tmp_path.rglob('*')
    if path.is_file()
  }
  assert files - left == removed
