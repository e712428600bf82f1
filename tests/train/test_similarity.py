"""The options of the command: what is refused before a model is opened."""

import pytest

from train import similarity


@pytest.fixture
def paths(tmp_path):
  """Two files in the folder where `run_command` runs."""
  (tmp_path / 'a.txt').write_text('a text\nthe same\n')
  (tmp_path / 'b.txt').write_text('ein Text\nderselbe\n')
  return 'a.txt', 'b.txt'


def test_files_of_translations(paths, run_command, tmp_path):
  def refused(*arguments):
    with pytest.raises(SystemExit) as error:
      run_command(similarity, 'none', '--parallel', *arguments)
    return str(error.value)

  (tmp_path / 'there.png').touch()
  assert 'already there' in refused(*paths, '--out', 'there.png')
  assert 'ends in .png' in refused(*paths, '--out', 'out.jpg')
  assert 'missing.txt' in refused('a.txt', 'missing.txt', '--out', 'new.png')
  assert not (tmp_path / 'new.png').exists()


@pytest.mark.parametrize(
  'options',
  [
    (),
    ('a.txt', '--compare', 'glue'),
    ('--compare', 'glue', '--query', 'a'),
    ('--compare', 'glue', '--pool', 'mean'),
    ('a.txt', '--parallel', 'a.txt', 'b.txt'),
    ('--parallel', 'a.txt', 'b.txt', '--compare', 'glue'),
    ('--parallel', 'a.txt', 'b.txt', '--pool', 'mean'),
    ('--parallel', 'a.txt'),
    ('a.txt', '--by_layer'),
    ('a.txt', '--out', 'a.png'),
    ('a.txt', '--query', 'a', '--overwrite'),
    ('a.txt', '--top_k', '3'),
    ('a.txt', '--query', 'a', '--beside', 'other'),
  ],
)
def test_options_that_do_not_go_together(run_command, options):
  with pytest.raises(SystemExit) as error:
    run_command(similarity, 'none', *options)
  assert error.value.code == 2
