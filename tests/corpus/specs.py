"""Pytrees of operands and results, kinds of block dimensions, scratch, aliases, parameters."""
import jax.numpy as jnp
import numpy as np

from . import case, integers, normal, shape


@case
def a_dict_of_operands(pl, pltpu):
    def kernel(p, x_ref, o_ref):
        o_ref[...] = x_ref[...] @ p["weight"][...] + p["bias"][...]
    whole = {"bias": pl.BlockSpec((1, 6), lambda i: (0, 0)), "weight": pl.BlockSpec((5, 6), lambda i: (0, 0))}
    return pl.pallas_call(kernel, shape(8, 6), grid=(2,), in_specs=[whole, pl.BlockSpec((4, 5), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((4, 6), lambda i: (i, 0))), (
        {"weight": normal(5, 6), "bias": normal(1, 6, seed=1)}, normal(8, 5, seed=2))


@case
def nested_tuples_of_operands(pl, pltpu):
    def kernel(pair, z_ref, o_ref):
        (x_ref, (y_ref,)) = pair
        o_ref[...] = x_ref[...] * y_ref[...] - z_ref[...]
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 4), grid=(2,), in_specs=((rows, (rows,)), rows), out_specs=rows), (
        (normal(4, 4), (normal(4, 4, seed=1),)), normal(4, 4, seed=2))


@case
def a_dict_of_results(pl, pltpu):
    def kernel(x_ref, out):
        out["sum"][...] = x_ref[...].sum(axis=1, keepdims=True)
        out["largest"][...] = x_ref[...].max(axis=1, keepdims=True)
    column = pl.BlockSpec((2, 1), lambda i: (i, 0))
    return pl.pallas_call(kernel, {"sum": shape(6, 1), "largest": shape(6, 1)}, grid=(3,),
                          in_specs=[pl.BlockSpec((2, 8), lambda i: (i, 0))],
                          out_specs={"sum": column, "largest": column}), (normal(6, 8),)


@case
def a_nest_of_results(pl, pltpu):
    def kernel(x_ref, a_ref, rest):
        a_ref[...] = x_ref[...]
        rest["twice"][...] = x_ref[...] * 2
        rest["more"][0][...] = x_ref[...] * 3
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, (shape(4, 4), {"twice": shape(4, 4), "more": [shape(4, 4)]}), grid=(2,),
                          in_specs=[rows], out_specs=(rows, {"twice": rows, "more": [rows]})), (normal(4, 4),)


@case
def a_list_of_results(pl, pltpu):
    def kernel(x_ref, low_ref, high_ref):
        low_ref[...] = jnp.minimum(x_ref[...], 0)
        high_ref[...] = jnp.maximum(x_ref[...], 0)
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, [shape(4, 4), shape(4, 4)], grid=(2,), in_specs=[rows], out_specs=[rows, rows]), (
        normal(4, 4),)


@case
def a_tuple_of_one_result(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = -x_ref[...]
    return pl.pallas_call(kernel, (shape(4, 4),)), (normal(4, 4),)


@case
def out_shape_from_an_array(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = -x_ref[...]
    x = normal(4, 4)
    return pl.pallas_call(kernel, out_shape=x), (x,)


@case
def a_variable_number_of_operands(pl, pltpu):
    def kernel(*refs):
        *inputs, o_ref = refs
        o_ref[...] = sum(x_ref[...] * (n + 1) for n, x_ref in enumerate(inputs))
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(4, 4), grid=(2,), in_specs=[rows] * 3, out_specs=rows), tuple(
        normal(4, 4, seed=s) for s in range(3))


@case
def every_kind_of_block_dimension(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    return pl.pallas_call(kernel, shape(3, 8, 4), grid=(3, 2), in_specs=[
        pl.BlockSpec((pl.Squeezed(), pl.Blocked(4), 4), lambda b, i: (b, i, 0)),
        pl.BlockSpec((None, 4, pl.squeezed, 4), lambda b, i: (b, i, 1, 0))],
        out_specs=pl.BlockSpec((pl.squeezed, 4, pl.Blocked(4)), lambda b, i: (b, i, 0))), (
        normal(3, 8, 4), normal(3, 8, 2, 4, seed=1))


@case
def all_dimensions_squeezed(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    one = pl.BlockSpec((None, None), lambda i, j: (i, j))
    return pl.pallas_call(kernel, shape(3, 2), grid=(3, 2), in_specs=[one], out_specs=one), (normal(3, 2),)


@case
def windows_by_element(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[0:4] + x_ref[1:5] + x_ref[2:6]
    return pl.pallas_call(kernel, shape(12), grid=(3,), in_specs=[pl.BlockSpec((pl.Element(6),), lambda i: (4 * i,))],
                          out_specs=pl.BlockSpec((4,), lambda i: (i,))), (normal(14),)


@case
def a_stencil_with_a_halo(pl, pltpu):
    def kernel(x_ref, o_ref):
        x = x_ref[...]
        o_ref[...] = x[1:-1, 2:] + x[1:-1, :-2] + x[2:, 1:-1] + x[:-2, 1:-1] - 4 * x[1:-1, 1:-1]
    return pl.pallas_call(kernel, shape(8, 6), grid=(2, 2), in_specs=[
        pl.BlockSpec((pl.Element(6), pl.Element(5)), lambda i, j: (i * 4, j * 3))],
        out_specs=pl.BlockSpec((4, 3), lambda i, j: (i, j))), (normal(10, 8),)


@case
def a_convolution_that_masks_its_padding(pl, pltpu):
    def kernel(x_ref, w_ref, o_ref):
        at = pl.program_id(0) * 4 + jnp.arange(6) - 1
        x = jnp.where(((at >= 0) & (at < 12))[:, None], x_ref[...], 0.0)
        o_ref[...] = sum(x[d:d + 4] * w_ref[d, 0] for d in range(3))
    return pl.pallas_call(kernel, shape(12, 5), grid=(3,), in_specs=[
        pl.BlockSpec((pl.Element(6, padding=(1, 1)), pl.Element(5)), lambda i: (i * 4, 0)),
        pl.BlockSpec((3, 1), lambda i: (0, 0))], out_specs=pl.BlockSpec((4, 5), lambda i: (i, 0))), (
        normal(12, 5), normal(3, 1, seed=1))


@case
def results_placed_by_element(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2
    return pl.pallas_call(kernel, shape(8, 4), grid=(4,), in_specs=[pl.BlockSpec((2, 4), lambda i: (i, 0))],
                          out_specs=pl.BlockSpec((pl.Element(2), pl.Element(4)), lambda i: (6 - 2 * i, 0))), (
        normal(8, 4),)


@case
def one_buffer_and_two(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[...]
    return pl.pallas_call(kernel, shape(8, 4), grid=(4,), in_specs=[
        pl.BlockSpec((2, 4), lambda i: (i, 0), pipeline_mode=pl.Buffered(1)),
        pl.BlockSpec((2, 4), lambda i: (i, 0), pl.Buffered(2))],
        out_specs=pl.BlockSpec((2, 4), lambda i: (i, 0), pl.Buffered(buffer_count=1))), (
        normal(8, 4), normal(8, 4, seed=1))


@case
def operands_in_vmem_and_smem(pl, pltpu):
    def kernel(scale_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale_ref[0, 1]
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0), memory_space=pltpu.VMEM)
    return pl.pallas_call(kernel, shape(4, 4), grid=(2,), in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), rows],
                          out_specs=rows), (normal(1, 2), normal(4, 4, seed=1))


@case
def a_grid_spec(pl, pltpu):
    def kernel(x_ref, o_ref, s_ref):
        s_ref[...] = x_ref[...] * x_ref[...]
        o_ref[...] = s_ref[...] + 1
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    spec = pl.GridSpec(grid=(2,), in_specs=[rows], out_specs=rows, scratch_shapes=[pltpu.VMEM((2, 4), jnp.float32)])
    return pl.pallas_call(kernel, out_shape=shape(4, 4), grid_spec=spec), (normal(4, 4),)


@case
def all_the_parameters(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.exp(x_ref[...])
    rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(
        kernel, shape(4, 4), grid=(2,), in_specs=[rows], out_specs=rows, name="exponential", debug=False,
        compiler_params=pltpu.CompilerParams(dimension_semantics=(pltpu.PARALLEL,), vmem_limit_bytes=1 << 20,
                                             has_side_effects=True, allow_input_fusion=[True]),
        cost_estimate=pl.CostEstimate(flops=0, transcendentals=16, bytes_accessed=128), metadata={"by": "us"}), (
        normal(4, 4),)


@case
def scratch_as_keywords(pl, pltpu):
    def kernel(x_ref, o_ref, *, count, rows):
        @pl.when(pl.program_id(0) == 0)
        def _():
            count[0] = 0
        count[0] += 1
        rows[...] = x_ref[...] * count[0].astype(jnp.float32)
        o_ref[...] = rows[...]
    block = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(6, 4), grid=(3,), in_specs=[block], out_specs=block, scratch_shapes={
        "count": pltpu.SMEM((1,), jnp.int32), "rows": pltpu.VMEM((2, 4), jnp.float32)}), (normal(6, 4),)


@case
def scratch_remembers_the_block_before(pl, pltpu):
    def kernel(x_ref, o_ref, before_ref):
        @pl.when(pl.program_id(0) == 0)
        def _():
            before_ref[...] = jnp.zeros_like(before_ref)
        o_ref[...] = x_ref[...] - before_ref[...]
        before_ref[...] = x_ref[...]
    block = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(6, 4), grid=(3,), in_specs=[block], out_specs=block,
                          scratch_shapes=[pltpu.VMEM((2, 4), jnp.float32)]), (normal(6, 4),)


@case
def an_alias_updates_in_place(pl, pltpu):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    block = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(6, 4), grid=(3,), in_specs=[block, block], out_specs=block,
                          input_output_aliases={1: 0}), (normal(6, 4), normal(6, 4, seed=1))


@case
def an_alias_keeps_blocks_that_no_step_visits(pl, pltpu):
    def kernel(x_ref, o_ref):
        o_ref[...] = -x_ref[...]
    block = pl.BlockSpec((2, 4), lambda i: (2 * i, 0))
    return pl.pallas_call(kernel, shape(8, 4), grid=(2,), in_specs=[block], out_specs=block,
                          input_output_aliases={0: 0}), (normal(8, 4),)


@case
def aliases_count_leaves_of_dicts(pl, pltpu):
    def kernel(state, o, p):
        o[...] = state["a"][...] * 2
        p[...] = state["b"][...] * 3
    block = pl.BlockSpec((2, 4), lambda i: (i, 0))
    return pl.pallas_call(kernel, [shape(4, 4), shape(4, 4)], grid=(2,), in_specs=[{"a": block, "b": block}],
                          out_specs=[block, block], input_output_aliases={1: 1}), (
        {"b": normal(4, 4), "a": normal(4, 4, seed=1)},)


@case
def operands_of_other_ranks(pl, pltpu):
    def kernel(x_ref, y_ref, n_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...].sum(axis=(0, 2)) + n_ref[0].astype(jnp.float32)
    return pl.pallas_call(kernel, shape(8), grid=(2,), in_specs=[
        pl.BlockSpec((4,), lambda i: (i,)), pl.BlockSpec((2, 4, 3), lambda i: (0, i, 0)),
        pl.BlockSpec((1,), lambda i: (i,))], out_specs=pl.BlockSpec((4,), lambda i: (i,))), (
        normal(8), normal(2, 8, 3, seed=1), integers(0, 9, 2))


@case
def numpy_arrays_as_operands(pl, pltpu):
    def kernel(x_ref, s_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[...]
    return pl.pallas_call(kernel, shape(3, 4)), (normal(3, 4), np.full((3, 4), 2, np.float32))
