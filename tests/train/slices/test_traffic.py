"""Bytes that kernels move, of a program as a GPU's compiler prints it."""

# ruff: noqa: E501

from train.slices import traffic

PROGRAM = """HloModule step

%body (state: (s32[], f32[4,8,16])) -> (s32[], f32[4,8,16]) {
  %state = (s32[], f32[4,8,16]) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %stack = f32[4,8,16]{2,1,0} get-tuple-element(%state), index=1
  %new = f32[4,8,16]{2,1,0} fusion(%stack, %i), kind=kLoop, calls=%update
  ROOT %next = (s32[], f32[4,8,16]) tuple(%i, %new)
}

%condition (state.1: (s32[], f32[4,8,16])) -> pred[] {
  %state.1 = (s32[], f32[4,8,16]) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %end = s32[] constant(4)
  ROOT %less = pred[] compare(%i.1, %end), direction=LT
}

%update (stack.1: f32[4,8,16], i.2: s32[]) -> f32[4,8,16] {
  %stack.1 = f32[4,8,16]{2,1,0} parameter(0)
  %i.2 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %layer = f32[1,8,16]{2,1,0} dynamic-slice(%stack.1, %i.2, %zero, %zero)
  %twice = f32[1,8,16]{2,1,0} add(%layer, %layer)
  ROOT %written = f32[4,8,16]{2,1,0} dynamic-update-slice(%stack.1, %twice, %i.2, %zero, %zero)
}

%wrapped (x.1: bf16[8,16]) -> bf16[16,8] {
  %x.1 = bf16[8,16]{1,0} parameter(0)
  ROOT %turned = bf16[16,8]{1,0} transpose(%x.1), dimensions={1,0}
}

ENTRY %main (x: bf16[8,16], stack.2: f32[4,8,16]) -> f32[4,8,16] {
  %x = bf16[8,16]{1,0} parameter(0)
  %stack.2 = f32[4,8,16]{2,1,0} parameter(1)
  %turn = bf16[16,8]{1,0} fusion(%x), kind=kLoop, calls=%wrapped
  %kernel = bf16[8,16]{1,0} custom-call(%x, %x, %turn), custom_call_target="ours"
  %start = s32[] constant(0)
  %tuple = (s32[], f32[4,8,16]) tuple(%start, %stack.2)
  %loop = (s32[], f32[4,8,16]) while(%tuple), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"4"}}
  ROOT %result = f32[4,8,16]{2,1,0} get-tuple-element(%loop), index=1
}
"""


def test_slices_count_and_loops_count_as_often_as_they_run():
  half, layer = 2 * 8 * 16, 4 * 8 * 16
  turn = 2 * half
  kernel = 3 * half  # x once, the other operand, the result
  index = 4
  loop = 4 * (2 * layer + index)  # a layer read, a layer written
  found = traffic.measure(PROGRAM)
  assert found == traffic.Traffic(turn + kernel + loop, 1 + 1 + 4)
