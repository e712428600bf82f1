"""The TPU compiler's estimate: read off a text, and of a small step of ours."""

import collections
import math

import compile_step
import pytest

from train.host import device
from train.slices import cycles, topology

PROGRAM = """
%product (p: bf16[4,8]) -> bf16[4,8] {
  %convolution.1 = bf16[4,8] convolution(%p, %p),\
 metadata={op_name="jit(step)/jvp(Bert)/layers/mlp/dot_general"}
  ROOT %write = bf16[2,4,8] dynamic-update-slice(%p, %convolution.1),\
 metadata={op_name="jit(step)/while/body/dynamic_update_slice"}
}

%reduced (p: bf16[4,8]) -> bf16[2,8] {
  ROOT %all-reduce.1 = bf16[4,8] all-reduce(%p), channel_id=1
}

%body (p: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %fusion.1 = bf16[4,8] fusion(%x), kind=kOutput, calls=%product,\
 metadata={op_name="jit(step)/while/body/dynamic_update_slice"},\
 backend_config={"window_config":{"estimated_cycles":"100"}}
  %call.1 = bf16[4,8]{1,0:T(8,128)} custom-call(%fusion.1),\
 custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"estimated_cycles":"1000"
}}, metadata={op_name="jit(step)/jvp(Bert)/attention/shard_map/pallas_call"}
  %part.1 = bf16[4,8] get-tuple-element(%call.1), index=0,\
 frontend_attributes={kernel_metadata={
"estimated_cycles":"1000"
}}, metadata={op_name="jit(step)/jvp(Bert)/attention/shard_map/pallas_call"}
  %copy.1 = bf16[4,8] copy(%part.1), backend_config={"estimated_cycles":"1"}
  ROOT %tuple.1 = (s32[], bf16[4,8]) tuple(%i, %copy.1)
}

%cond (p: (s32[], bf16[4,8])) -> pred[] {
  %c = s32[] constant(12)
  ROOT %lt = pred[] compare(%i, %c), direction=LT
}

%short (p: bf16[4,8]) -> bf16[4,8] {
  ROOT %add.1 = bf16[4,8] add(%p, %p), backend_config={"estimated_cycles":"5"},\
 metadata={op_name="jit(step)/jvp(Elmo)/_encode_once/branch_0_fun/add"}
}

%long (p: bf16[4,8]) -> bf16[4,8] {
  ROOT %add.2 = bf16[4,8] add(%p, %p), backend_config={"estimated_cycles":"7"},\
 metadata={op_name="jit(step)/jvp(Elmo)/_encode_once/branch_1_fun/add"}
}

ENTRY %main (p: bf16[4,8]) -> bf16[4,8] {
  %convert.1 = bf16[4,8] convert(%p), backend_config={"estimated_cycles":"30"}
  %copy-start.1 = (bf16[4,8], u32[]) copy-start(%convert.1)
  %copy-done.1 = bf16[4,8] copy-done(%copy-start.1)
  %norm.1 = bf16[4,8] fusion(%copy-done.1), kind=kLoop, calls=%short,\
 backend_config={"estimated_cycles":"20"},\
 metadata={op_name="jit(step)/jvp(Bert)/mlp_norm/div"}
  %while.1 = (s32[], bf16[4,8]) while(%norm.1), condition=%cond, body=%body,\
 metadata={op_name="jit(step)/jvp(Bert)/while"}
  %conditional.1 = bf16[4,8] conditional(%i, %p, %p),\
 branch_computations={%short, %long}
  %gather_fusion.3 = bf16[4,8] fusion(%p), kind=kCustom, calls=%short
  %fusion.2 = bf16[4,8] fusion(%p), kind=kCustom, calls=%reduced
  ROOT %copy.2 = bf16[4,8] copy(%p), backend_config={"estimated_cycles":"9"}
}
"""


def test_cycles_of_each_kind_are_summed():
  found = cycles.estimate(PROGRAM)
  assert found.by_kind == {
    'attention': 12 * 1000,  # the kernel's own estimate, in a loop
    'projections': 12 * 100,  # the fusion writes a slice, too
    'norms': 20 + 30,  # and the cast that it reads
    'loop bookkeeping': 12,  # no name, and nothing but the loop reads it
    'optimiser': 9,  # likewise, but the step
    'embeddings': 7,  # of both branches the longer
  }
  assert list(found.by_kind)[0] == 'attention'
  assert found.cycles == 13_278
  assert found.left_out == {'gather': 1}  # links are not an operation's time
  assert found.bounded == []
  shared = cycles.estimate(PROGRAM, num_cores=2)
  assert found.cycles - shared.cycles == 12 * 500


NAMES = {
  'jvp(Bert)/while/body/closed_call/layers/layers.attend/attention/qkv/'
  'dot_general': 'projections',
  'transpose(jvp(Bert))/closed_call/layers/layers.attend/attention/'
  'dot_general': 'projections',
  'while/body/closed_call/jvp(Gpt)/Gpt._run_layers/closed_call/layers/'
  'layers.attend/attention/while/body/closed_call/reduce_sum': 'attention',
  'jvp(Bert)/layers/layers.attend/attention/attention_forward/pallas_call': (
    'attention'
  ),
  'transpose(jvp(Bert))/layers/layers.transform/layers.drop/mul': 'dropout',
  'jvp(Gpt)/embeddings/sum_dropout/mul': 'dropout',
  'jvp(Bert)/embeddings/layer_norm/reduce_sum': 'norms',
  'transpose(jvp(Bert))/embeddings/tokens/jit(_take)/scatter-add': 'embeddings',
  'jvp(Gpt)/tokens.attend/BPD,VD->BPV/dot_general': 'head',
  'jvp(Elmo.read_on)/softmax.sampled_losses/slice': 'head',
  'jvp()/reduce_sum': 'head',
  'jvp(Elmo.read_on)/Elmo.run_streams/Elmo._run_layers/layers_0/while/body/'
  'closed_call/KBP,KPGF->KBGF/dot_general': 'recurrence',
  'jvp(Bert)/while/body/jit(dynamic_index_in_dim)/squeeze': 'loop bookkeeping',
  'jvp(Bert)/slice': 'loop bookkeeping',
  'while/body/closed_call/add': 'optimiser',  # sums over micro-batches
  'jit(_where)/select_n': 'optimiser',
  'sharding_constraint': 'optimiser',
  'vmap()/gather': 'rest',  # drawing the masks
}


@pytest.mark.parametrize('name', NAMES)
def test_names_in_the_code_tell_the_kind(name):
  operation = cycles.Operation(f'jit(step_fn)/{name}', 'fusion', 1, 1)
  assert operation.kind == NAMES[name]


def test_loops_that_end_with_the_data_count_at_their_most():
  text = PROGRAM.replace('constant(12)', 'parameter(0)')
  with pytest.raises(ValueError, match=r'loop .*/while: .*at_most_N_times'):
    cycles.estimate(text)
  name = 'jit(step)/jvp(Elmo)/_encode_once/shard_map/at_most_3_times/while'
  text = text.replace('jit(step)/jvp(Bert)/while', name)
  found = cycles.estimate(text)
  assert found.by_kind['attention'] == 3 * 1000
  assert found.bounded == [name]


def test_a_kernel_without_an_estimate_is_named():
  text = PROGRAM.replace('"estimated_cycles":"1000"', '"other":"1000"')
  with pytest.raises(ValueError, match=r'kernel .*/pallas_call: .*metadata='):
    cycles.estimate(text)


def test_a_program_without_estimates_is_not_taken_for_fast():
  text = PROGRAM.replace('estimated_cycles', 'cycles')
  text = text.replace('tpu_custom_call', 'other')
  with pytest.raises(ValueError, match="has no 'estimated_cycles'"):
    cycles.estimate(text)


# FLOPs of a device in a cycle: a product of 8192^3 in bfloat16 takes the
# compiler 70 to 98 % of them.
FLOPS_A_CYCLE = {
  'v2': 128 * 128 * 2,
  'v3': 2 * 128 * 128 * 2,
  'v4': 8 * 128 * 128 * 2,
  'v5e': 4 * 128 * 128 * 2,
  'v5p': 8 * 128 * 128 * 2,
  'v6e': 4 * 256 * 256 * 2,
  'tpu7x': 4 * 256 * 256 * 2,
}
DEVICE_KINDS = {
  'v5e': 'TPU v5 lite',
  'v5p': 'TPU v5',
  'v6e': 'TPU v6 lite',
  'tpu7x': 'TPU7x',
}


def test_clocks_give_the_published_peak_rates():
  for name, generation in topology.GENERATIONS.items():
    peak = device.peak_of(DEVICE_KINDS.get(name, f'TPU {name}'))
    rate = FLOPS_A_CYCLE[name] * generation.clock_ghz / 1e3
    assert rate == pytest.approx(peak, rel=0.02), name


# A step of a small BERT in which no other array has the size of the attention
# weights, and its cycles on each chip of v5e-4, by libtpu 0.0.42.1. The figures
# to write here after a change for the better are printed by
# PYTHONPATH=.:tests/helpers python tests/train/slices/test_cycles.py
ROWS, HEADS, LENGTH = 8, 6, 256  # rows of a chip
CYCLES = 1_899_998


def compile_small(chips=4):
  config = {
    'model.num_layers': 3,
    'model.embed_dim': 64 * HEADS,
    'model.num_heads': HEADS,
    'model.mlp_dim': 640,
    'data.tokenizer': 'train:wordpiece:2000',
    'train.phases': ((1000, LENGTH, chips * ROWS, 'continue'),),
    'eval.global_batch': chips * ROWS,
  }
  return compile_step.compile_apart('bert_base', f'v5e-{chips}', config)


def cycles_of(step, kind=None):
  """Returns the estimated cycles of a step; its kernels must have some."""
  operations = [cycles.Operation(*each) for each in step['operations']]
  kernels = [each for each in operations if each.label == cycles.KERNEL]
  assert kernels and all(each.cycles for each in kernels)
  return sum(
    each.cycles or 0 for each in operations if kind in (None, each.kind)
  )


@pytest.fixture(scope='module')
def step():
  return compile_small()


@pytest.mark.slow
def test_a_small_step_takes_no_more_cycles_than_before(step):
  found = cycles_of(step)
  assert found < 1.05 * CYCLES, (
    f'{found:,} cycles, {CYCLES:,} before; if they have to be, write CYCLES ='
    f' {found:_} into {__file__}'
  )


@pytest.mark.slow
def test_chips_do_the_same_on_a_larger_slice(step):
  """Each has as many rows there, and less of what they share."""
  larger = compile_small(chips=16)
  assert cycles_of(larger) == pytest.approx(cycles_of(step), rel=0.03)
  assert cycles_of(larger, 'optimiser') < cycles_of(step, 'optimiser')
  assert larger['argument_bytes'] < step['argument_bytes'] / 2
  for each in (step, larger):
    check_travelling(each)


def check_travelling(step):
  """Parameters and gradients travel once, and little else."""
  whole = 4 * sum(map(math.prod, step['parameters'].values()))
  travelling = collections.Counter()
  for each in step['collectives']:
    travelling[each['kind']] += each['bytes']
  assert 0 < travelling.pop('all-gather') < whole
  assert 0 < travelling.pop('all-reduce') < 2 * whole
  assert travelling.total() < 0.05 * whole


@pytest.mark.slow
def test_attention_weights_are_not_written_to_memory(step):
  assert not [shape for shape in step['written'] if is_weights(shape)]
  # The activations of a layer are, which tells that arrays are seen.
  assert [ROWS, LENGTH, 64 * HEADS] in step['written']


def is_weights(shape):
  """Returns whether an array may be of attention weights, in any layout.

  Plain attention writes them for 128 query positions at a time.
  """
  return math.prod(shape) % (ROWS * HEADS * 128 * LENGTH) == 0


def test_attention_weights_are_found_in_any_layout():
  text = '%f (p: f32[2]) -> f32[2] {\n  %a = f32[9,9]{1,0} add(%p, %p)\n}\n\n'
  text += (
    'ENTRY %main (p: f32[2]) -> f32[2] {\n'
    '  %b = (pred[8,256,1536]{2,1,0:T(8,128)}, s32[]) fusion(%p), calls=%f\n'
    '  %c = bf16[2,8,6,256,256]{1,0} copy(%b)\n}\n'
  )
  written = compile_step.written_shapes(text)
  assert written == [(2, 8, 6, 256, 256), (8, 256, 1536)]
  assert all(map(is_weights, written))


if __name__ == '__main__':
  print('CYCLES =', cycles_of(compile_small()))
