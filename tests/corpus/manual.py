"""Kernels with copies of their own: DMA semaphores, double buffers by hand, scopes."""
import jax.numpy as jnp
from jax import lax

from . import case, integers, normal, shape

ROWS, COLUMNS = 8, 128  # of a block: a tile of a TPU


def hbm(pl):
    return pl.BlockSpec(memory_space=pl.ANY)


def buffer(pltpu, *slots, dtype=jnp.float32):
    return pltpu.VMEM((*slots, ROWS, COLUMNS), dtype)


def block(pl, ref, i):
    return ref.at[pl.ds(i * ROWS, ROWS)]


# -- one copy after the other

@case
def a_whole_array_through_vmem(pl, pltpu):
    def kernel(x_hbm, o_hbm, buf, sem):
        copy = pltpu.make_async_copy(x_hbm, buf, sem)
        copy.start()
        copy.wait()
        buf[...] = buf[...] * 2
        back = pltpu.make_async_copy(buf, o_hbm, sem)
        back.start()
        back.wait()
    return pl.pallas_call(kernel, shape(8, 128), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          scratch_shapes=[buffer(pltpu), pltpu.SemaphoreType.DMA]), (normal(8, 128),)


@case
def synchronous_copies(pl, pltpu):
    def kernel(x_hbm, o_hbm, buf):
        for i in range(3):
            pltpu.sync_copy(block(pl, x_hbm, 2 - i), buf)
            buf[...] = jnp.sin(buf[...])
            pltpu.sync_copy(buf, block(pl, o_hbm, i))
    return pl.pallas_call(kernel, shape(24, 128), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          scratch_shapes=[buffer(pltpu)]), (normal(24, 128),)


@case
def started_at_once_and_waited_for_together(pl, pltpu):
    def kernel(x_hbm, y_hbm, o_ref, x_buf, y_buf, sem):
        first = pltpu.async_copy(x_hbm, x_buf, sem)
        second = pltpu.async_copy(y_hbm, y_buf, sem)
        first.wait()
        second.wait()
        o_ref[...] = x_buf[...] - y_buf[...]
    return pl.pallas_call(kernel, shape(8, 128), in_specs=[hbm(pl), hbm(pl)],
                          scratch_shapes=[buffer(pltpu), buffer(pltpu), pltpu.SemaphoreType.DMA]), (
        normal(8, 128), normal(8, 128, seed=1))


@case
def from_array_to_array(pl, pltpu):
    def kernel(x_hbm, o_hbm, sems):
        def half(i):
            return pltpu.make_async_copy(block(pl, x_hbm, i), block(pl, o_hbm, 1 - i), sems.at[i])
        for i in range(2):
            half(i).start()
        for i in range(2):
            half(i).wait()
    return pl.pallas_call(kernel, shape(16, 128), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          scratch_shapes=[pltpu.SemaphoreType.DMA((2,))]), (normal(16, 128),)


@case
def from_buffer_to_buffer(pl, pltpu):
    def kernel(x_ref, o_ref, buf, sem):
        pltpu.async_copy(x_ref, buf.at[1], sem).wait()
        pltpu.async_copy(buf.at[1], buf.at[0], sem).wait()
        o_ref[...] = buf[0] + buf[1]
    rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(16, 128), grid=(2,), in_specs=[rows], out_specs=rows,
                          scratch_shapes=[buffer(pltpu, 2), pltpu.SemaphoreType.DMA]), (normal(16, 128),)


@case
def a_buffer_filled_in_parts(pl, pltpu):
    def kernel(x_hbm, y_hbm, o_ref, buf, sems):
        parts = [pltpu.make_async_copy(x_hbm.at[pl.ds(4, 8)], buf.at[pl.ds(0, 8)], sems.at[0, 1]),
                 pltpu.make_async_copy(y_hbm.at[pl.ds(0, 4)], buf.at[pl.ds(8, 4)], sems.at[1, 0]),
                 pltpu.make_async_copy(y_hbm.at[pl.ds(12, 4)], buf.at[pl.ds(12, 4)], sems.at[1, 1])]
        for part in parts:
            part.start()
        for part in reversed(parts):
            part.wait()
        o_ref[...] = buf[...] * 3
    return pl.pallas_call(kernel, shape(16, 128), in_specs=[hbm(pl), hbm(pl)], scratch_shapes=[
        pltpu.VMEM((16, 128), jnp.float32),
        pltpu.SemaphoreType.DMA((2, 2))]), (normal(16, 128), normal(16, 128, seed=1))


@case
def columns(pl, pltpu):
    def kernel(x_hbm, o_hbm, buf, sem):
        @pl.loop(0, 3)
        def _(j):
            here = pl.ds(j * COLUMNS, COLUMNS)
            pltpu.async_copy(x_hbm.at[:, here], buf, sem).wait()
            buf[...] = buf[...] * (j + 1).astype(jnp.float32)
            pltpu.async_copy(buf, o_hbm.at[:, here], sem).wait()
    return pl.pallas_call(kernel, shape(8, 384), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          scratch_shapes=[buffer(pltpu), pltpu.SemaphoreType.DMA]), (normal(8, 384),)


@case
def an_operand_in_hbm_of_integers(pl, pltpu):
    def kernel(x_hbm, o_ref, buf):
        i = pl.program_id(0)

        @pl.when(i < 2)
        def _():
            pltpu.sync_copy(x_hbm.at[i + 1], buf)
        o_ref[...] = buf[...] + i
    return pl.pallas_call(kernel, shape(24, 128, dtype=jnp.int32), grid=(3,),
                          in_specs=[pl.BlockSpec(memory_space=pltpu.HBM)],
                          out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
                          scratch_shapes=[buffer(pltpu, dtype=jnp.int32)]), (integers(-9, 9, 3, 8, 128),)


@case
def rows_of_an_aliased_array_in_place(pl, pltpu):
    def kernel(x_hbm, o_hbm, buf):
        @pl.loop(1, 4, step=2)
        def _(i):
            pltpu.sync_copy(block(pl, o_hbm, i), buf)
            buf[...] = -buf[...]
            pltpu.sync_copy(buf, block(pl, o_hbm, i))
    return pl.pallas_call(kernel, shape(32, 128), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          input_output_aliases={0: 0}, scratch_shapes=[buffer(pltpu)]), (normal(32, 128),)


@case(upstream="tpu")
def a_remote_copy_to_oneself(pl, pltpu):
    kind = getattr(pl, "DeviceIdType", None)  # newer versions have none: without a mesh a device has no coordinates
    me = {"device_id": 0, "device_id_type": kind.LOGICAL} if kind else {"device_id": ()}

    def kernel(x_hbm, o_hbm, buf, send, receive):
        def remote(source, target):
            return pltpu.make_async_remote_copy(source, target, send, receive, **me)
        remote(x_hbm, buf.at[0]).start()
        remote(x_hbm, buf.at[0]).wait()
        buf[1] = buf[0] * 2
        back = remote(buf.at[1], o_hbm)
        back.start()
        back.wait_send()
        buf[1] = buf[0]
        back.wait_recv()
    return pl.pallas_call(kernel, shape(8, 128), in_specs=[hbm(pl)], out_specs=hbm(pl),
                          scratch_shapes=[buffer(pltpu, 2), pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA]), (
        normal(8, 128),)


# -- memory with a scope

@case
def scopes_in_scopes(pl, pltpu):
    def kernel(x_hbm, o_ref):
        def outer(buf, sem):
            pltpu.async_copy(x_hbm, buf, sem).wait()

            def inner(copy_of_it, *, other_sem):
                pltpu.async_copy(buf, copy_of_it, other_sem).wait()
                return copy_of_it[...] + buf[...]
            o_ref[...] = pl.run_scoped(inner, buffer(pltpu), other_sem=pltpu.SemaphoreType.DMA)
        pl.run_scoped(outer, buffer(pltpu), sem=pltpu.SemaphoreType.DMA)
    return pl.pallas_call(kernel, shape(8, 128), in_specs=[hbm(pl)]), (normal(8, 128),)


@case
def a_scope_in_each_step(pl, pltpu):
    def kernel(x_ref, o_ref):
        scale = (pl.program_id(0) + 1).astype(jnp.float32)

        def scope(buf, sems):
            copies = [pltpu.async_copy(x_ref.at[pl.ds(4 * i, 4)], buf.at[pl.ds(4 - 4 * i, 4)], sems.at[i])
                      for i in range(2)]
            for copy in copies:
                copy.wait()
            o_ref[...] = buf[...] * scale
        pl.run_scoped(scope, buffer(pltpu), pltpu.SemaphoreType.DMA((2,)))
    rows = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return pl.pallas_call(kernel, shape(24, 128), grid=(3,), in_specs=[rows], out_specs=rows), (normal(24, 128),)


@case
def scratch_by_name(pl, pltpu):
    def kernel(x_hbm, o_ref, *, buf, sems):
        pltpu.async_copy(x_hbm, buf, sems.at[1]).wait()
        o_ref[...] = jnp.flip(buf[...], 0)
    return pl.pallas_call(kernel, shape(8, 128), in_specs=[hbm(pl)],
                          scratch_shapes={"buf": buffer(pltpu), "sems": pltpu.SemaphoreType.DMA((2,))}), (
        normal(8, 128),)


# -- pipelines by hand

def by_hand(pl, pltpu, depth, loop):
    """x * 2 over five blocks, each operand in `depth` slots. `loop(n, body)` is the kind of loop."""
    n = 5

    def kernel(x_hbm, o_hbm, x_buf, o_buf, in_sems, out_sems):
        def fetch(i):
            slot = lax.rem(i, depth)
            return pltpu.make_async_copy(block(pl, x_hbm, i), x_buf.at[slot], in_sems.at[slot])

        def send(i):
            slot = lax.rem(i, depth)
            return pltpu.make_async_copy(o_buf.at[slot], block(pl, o_hbm, i), out_sems.at[slot])
        for i in range(depth - 1):
            fetch(i).start()

        def step(i):
            @pl.when(i + depth - 1 < n)
            def _():
                fetch(i + depth - 1).start()
            fetch(i).wait()

            @pl.when(i >= depth)
            def _():
                send(i - depth).wait()
            o_buf[lax.rem(i, depth)] = x_buf[lax.rem(i, depth)] * 2
            send(i).start()
        loop(n, step)
        for i in range(n - depth, n):
            send(i).wait()
    return pl.pallas_call(kernel, shape(n * ROWS, COLUMNS), in_specs=[hbm(pl)], out_specs=hbm(pl), scratch_shapes=[
        buffer(pltpu, depth), buffer(pltpu, depth), pltpu.SemaphoreType.DMA((depth,)),
        pltpu.SemaphoreType.DMA((depth,))]), (normal(n * ROWS, COLUMNS),)


@case
def two_slots_in_a_fori_loop(pl, pltpu):
    return by_hand(pl, pltpu, 2, lambda n, step: lax.fori_loop(0, n, lambda i, _: step(i), None))


@case
def three_slots_in_a_loop_of_pallas(pl, pltpu):
    return by_hand(pl, pltpu, 3, lambda n, step: pl.loop(0, n)(step))


@case
def four_slots_in_a_loop_of_python(pl, pltpu):
    def loop(n, step):
        for i in range(n):
            step(i)
    return by_hand(pl, pltpu, 4, loop)


@case
def a_fetch_across_the_steps_of_a_grid(pl, pltpu):
    def kernel(x_hbm, o_ref, buf, sems):
        i, n = pl.program_id(0), pl.num_programs(0)

        def fetch(i):
            return pltpu.make_async_copy(block(pl, x_hbm, n - 1 - i), buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])

        @pl.when(i == 0)
        def _():
            fetch(i).start()

        @pl.when(i + 1 < n)
        def _():
            fetch(i + 1).start()
        fetch(i).wait()
        o_ref[...] = buf[lax.rem(i, 2)] + 1
    return pl.pallas_call(kernel, shape(32, 128), grid=(4,), in_specs=[hbm(pl)],
                          out_specs=pl.BlockSpec((8, 128), lambda i: (i, 0)),
                          scratch_shapes=[buffer(pltpu, 2), pltpu.SemaphoreType.DMA((2,))]), (normal(32, 128),)


@case
def an_output_sent_by_hand(pl, pltpu):
    def kernel(x_ref, o_hbm, buf, sems):
        i, n = pl.program_id(0), pl.num_programs(0)

        def send(i):
            return pltpu.make_async_copy(buf.at[lax.rem(i, 2)], block(pl, o_hbm, i), sems.at[lax.rem(i, 2)])

        @pl.when(i >= 2)
        def _():
            send(i - 2).wait()
        buf[lax.rem(i, 2)] = jnp.cos(x_ref[...])
        send(i).start()

        @pl.when(i == n - 1)
        def _():
            send(i - 1).wait()
            send(i).wait()
    return pl.pallas_call(kernel, shape(40, 128), grid=(5,), in_specs=[pl.BlockSpec((8, 128), lambda i: (i, 0))],
                          out_specs=hbm(pl), scratch_shapes=[buffer(pltpu, 2), pltpu.SemaphoreType.DMA((2,))]), (
        normal(40, 128),)


@case
def a_sum_over_fetched_blocks(pl, pltpu):
    def kernel(x_hbm, o_ref, buf, sems):
        def fetch(i):
            return pltpu.make_async_copy(block(pl, x_hbm, i), buf.at[lax.rem(i, 2)], sems.at[lax.rem(i, 2)])
        fetch(0).start()

        def step(i, total):
            lax.cond(i + 1 < 4, lambda: fetch(i + 1).start(), lambda: None)
            fetch(i).wait()
            return total + buf[lax.rem(i, 2)]
        o_ref[...] = lax.fori_loop(0, 4, step, jnp.zeros((8, 128), jnp.float32))
    return pl.pallas_call(kernel, shape(8, 128), in_specs=[hbm(pl)],
                          scratch_shapes=[buffer(pltpu, 2), pltpu.SemaphoreType.DMA((2,))]), (normal(32, 128),)


# -- rows chosen by prefetched indices

@case
def gathered_rows(pl, pltpu):
    def kernel(rows_ref, x_hbm, o_ref, sems):
        def fetch(i):
            return pltpu.make_async_copy(x_hbm.at[rows_ref[i]], o_ref.at[i], sems.at[lax.rem(i, 4)])

        @pl.loop(0, 4)
        def _(i):
            fetch(i).start()

        @pl.loop(0, 8)
        def _(i):
            fetch(i).wait()

            @pl.when(i + 4 < 8)
            def _():
                fetch(i + 4).start()
    return pl.pallas_call(kernel, shape(8, 128), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(1,), in_specs=[hbm(pl)], out_specs=pl.BlockSpec((8, 128), lambda i, rows: (0, 0)),
        scratch_shapes=[pltpu.SemaphoreType.DMA((4,))])), (integers(0, 16, 8), normal(16, 128))


@case
def gathered_blocks_of_a_grid(pl, pltpu):
    def kernel(blocks_ref, x_hbm, o_ref, buf, sem):
        pltpu.async_copy(x_hbm.at[blocks_ref[pl.program_id(0)]], buf, sem).wait()
        o_ref[...] = buf[...] * 2
    return pl.pallas_call(kernel, shape(24, 128), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(3,), in_specs=[hbm(pl)], out_specs=pl.BlockSpec((8, 128), lambda i, b: (i, 0)),
        scratch_shapes=[buffer(pltpu), pltpu.SemaphoreType.DMA])), (integers(0, 5, 3), normal(5, 8, 128))


@case
def scattered_rows(pl, pltpu):
    def kernel(rows_ref, x_ref, o_hbm, sem):
        @pl.loop(0, 8)
        def _(i):
            pltpu.make_async_copy(x_ref.at[i], o_hbm.at[rows_ref[i]], sem).start()

        @pl.loop(0, 8)
        def _(i):
            pltpu.make_async_copy(x_ref.at[i], o_hbm.at[rows_ref[i]], sem).wait()
    return pl.pallas_call(kernel, shape(8, 128), grid_spec=pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1, grid=(1,), in_specs=[pl.BlockSpec((8, 128), lambda i, rows: (0, 0))], out_specs=hbm(pl),
        scratch_shapes=[pltpu.SemaphoreType.DMA])), (integers(0, 9, 8).argsort().astype("int32"), normal(8, 128))
