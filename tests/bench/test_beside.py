import inspect

import beside
import pytest

from train import bench
from train.benches import programs, table, timing


def test_rivals_take_the_options_of_ours(monkeypatch, tmp_path):
  """Each bench has a rival to be called as our program is."""
  called = []

  def check(makers, repeats=1, warm_ups=1):
    for name, (make, options) in makers.items():
      inspect.signature(make).bind(**options)
      called.append((make, name))
    return {name: (2.0, 1.0) for name in makers}

  monkeypatch.setattr(timing, 'step_times', check)
  monkeypatch.setattr(table, 'step_times', check)
  (tmp_path / 'test.txt').write_text('(2 (2 A) (2 mat))\n')
  names = [name for name in beside.RIVALS if name in table.BENCHES]
  assert {*beside.RIVALS} - {*names} == {'products'}
  assert {name for name in table.BENCHES if table.BENCHES[name].timed} == {
    *names
  }
  names.remove('accelerator')
  options = dict(
    trees=str(tmp_path), weights='weights', data='data', sentences=None
  )
  results = table.run(names, options, beside.RIVALS)
  assert list(results['step']) == [
    f'{label}_{figure}'
    for label in ('dropout', 'no_dropout')
    for figure in (
      'ours_seconds',
      'hugging_face_seconds',
      'speed_ratio',
      'ours_model_gflop_per_second',
    )
  ] + ['jax_matmul_gflop_per_second', 'torch_matmul_gflop_per_second']
  assert results['finetune']['grouped_speed_ratio'] == 1
  assert results['elmo_embedding']['words'] == 2
  assert results['elmo_embedding']['pytorch_words_per_second'] == 1
  made = {make for make, _ in called}
  assert {programs.step, programs.epoch, programs.products} < made

  alone = table.run(['gpt2_step'], options, {})
  assert list(alone['gpt2_step']) == [
    'ours_seconds',
    'ours_model_gflop_per_second',
    'jax_matmul_gflop_per_second',
  ]


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['batches'], 'batches: expected one of step, '),
    (['embedding', '--trees', 'trees'], 'embedding needs --weights'),
  ],
)
def test_what_cannot_be_measured_is_refused(
  monkeypatch, capsys, arguments, message
):
  monkeypatch.setattr('sys.argv', ['beside.py', *arguments])
  with pytest.raises(SystemExit):
    bench.main('beside.py', beside.RIVALS)
  assert message in capsys.readouterr().err
