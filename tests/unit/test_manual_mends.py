"""What is said to a kernel with copies of its own fits the answer at hand: waits for parts, edges, late waits."""
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite import tpu as pltpu

X = np.arange(32 * 128, dtype=np.float32).reshape(32, 128)
ANY = pl.BlockSpec(memory_space=pl.ANY)


def hazards(kernel, x=X, **more):
    shape, more = more.pop("out", x.shape), {"in_specs": [ANY], **more}
    f = pl.pallas_call(kernel, jax.ShapeDtypeStruct(shape, x.dtype), **more)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        f(x)
    return said[0].message.hazards if said else []


# -- one copy, waited for in parts

SCRATCH = [pltpu.VMEM(X.shape, jnp.float32), pltpu.SemaphoreType.DMA]
WHOLE = "make_async_copy(x_hbm, buf, sem).wait()"


def started(x_hbm, buf, sem):
    copy = pltpu.make_async_copy(x_hbm, buf, sem)
    copy.start()
    return copy


def wait_for(rows, x_hbm, buf, sem):
    pltpu.make_async_copy(x_hbm.at[rows], buf.at[rows], sem).wait()


FIRST, SECOND = slice(0, 16), slice(16, 32)


def test_a_wait_for_half_of_a_copy_is_not_put_down_to_another_copy():
    def kernel(x_hbm, o_ref, buf, sem):
        started(x_hbm, buf, sem)
        wait_for(FIRST, x_hbm, buf, sem)
        buf[FIRST] = buf[FIRST] * 2
        wait_for(SECOND, x_hbm, buf, sem)
        o_ref[...] = buf[...]
    found = hazards(kernel, scratch_shapes=SCRATCH)
    assert [h.kind for h in found] == ["read before wait", "overwrite in flight"]
    for h in found:  # the second is only seen when the value is used, after all waits
        assert h.mend == ("The waits before took 8192 of its 16384 bytes, and do not tell which of them had arrived. "
                          f"Wait for all its parts first, or for the whole in place of them: {WHOLE}.")


def test_the_mends_are_right():
    def parts(x_hbm, o_ref, buf, sem):
        started(x_hbm, buf, sem)
        wait_for(FIRST, x_hbm, buf, sem)
        wait_for(SECOND, x_hbm, buf, sem)
        o_ref[...] = buf[...]

    def whole(x_hbm, o_ref, buf, sem):
        started(x_hbm, buf, sem).wait()
        o_ref[...] = buf[...]
    for kernel in (parts, whole):
        assert hazards(kernel, scratch_shapes=SCRATCH) == []


def test_two_copies_on_a_semaphore_still_share_it():
    def kernel(x_hbm, o_ref, buf, sem):
        copies = [pltpu.make_async_copy(x_hbm.at[rows], buf.at[rows], sem) for rows in (FIRST, SECOND)]
        for copy in copies:
            copy.start()
        copies[0].wait()
        o_ref[FIRST] = buf[FIRST]
        copies[1].wait()
        o_ref[SECOND] = buf[SECOND]
    [found] = hazards(kernel, scratch_shapes=SCRATCH)
    assert "A wait before may have had the bytes of the copy x_hbm[16:32] → buf[16:32]" in found.mend
    assert "the two share semaphore sem" in found.mend


def test_a_part_that_is_never_waited_for():
    def kernel(x_hbm, o_ref, buf, sem):
        started(x_hbm, buf, sem)
        wait_for(FIRST, x_hbm, buf, sem)
        o_ref[...] = jnp.zeros_like(o_ref)
    [found] = hazards(kernel, scratch_shapes=SCRATCH)
    assert found.message.endswith("is waited for in part: waits take 8192 of its 16384 bytes.")
    assert found.mend == f"In place of the wait for a part of it, call {WHOLE} before the kernel ends."


def test_the_whole_after_a_part_hangs():
    def kernel(x_hbm, o_ref, buf, sem):
        copy = started(x_hbm, buf, sem)
        wait_for(FIRST, x_hbm, buf, sem)
        copy.wait()
        o_ref[...] = buf[...]
    with pytest.raises(pl.PipelineError, match=r"16384 bytes, of which 8192 can come.* Part of what was started was "
                                               r"waited for already \(line \d+\): wait for the rest, or for the whole"):
        hazards(kernel, scratch_shapes=SCRATCH)


# -- past an edge

EDGE = X[:20]
ROWS = pl.BlockSpec((8, 128), lambda i: (i, 0))


def total(masked):
    def kernel(x_hbm, o_ref):
        o_ref[...] = jnp.zeros_like(o_ref)

        def add(x_ref):
            row = 8 * pl.program_id(0) + jax.lax.broadcasted_iota(jnp.int32, (8, 128), 0)
            o_ref[...] += jnp.where(row < 20, x_ref[...], 0) if masked else x_ref[...]
        pltpu.emit_pipeline(add, grid=(3,), in_specs=[ROWS])(x_hbm)
    return kernel


def test_an_edge_of_a_pipeline_inside_a_kernel_is_left_out_not_written():
    [found] = hazards(total(masked=False), EDGE, out=(8, 128))
    assert "part of which lies past the edge of its array, where its slot keeps what it held." in found.message
    assert found.mend == ("Leave what lies past the edge out with jnp.where, on every operand, rather than multiplying "
                          "it by 0.")
    assert hazards(total(masked=True), EDGE, out=(8, 128)) == []


def test_an_edge_is_not_copied_elsewhere():
    def kernel(x_ref, o_ref, buf, sem):
        pltpu.async_copy(x_ref, buf, sem).wait()

        @pl.when(pl.program_id(0) == 0)
        def _():
            o_ref[...] = jnp.zeros_like(o_ref)
        o_ref[...] += buf[...]
    [found] = hazards(kernel, EDGE, out=(8, 128), grid=(3,), in_specs=[ROWS], scratch_shapes=[
        pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA], out_specs=pl.BlockSpec((8, 128), lambda i: (0, 0)))
    assert "sends what lies past the edge of its array" in found.message
    assert found.mend.startswith("Copy only what lies inside, or leave what lies past the edge out with jnp.where")


# -- late waits

def test_what_two_copies_wrote_in_either_order_was_written():
    def kernel(x_hbm, o_ref, sem):
        i = pl.program_id(0)
        copy = pltpu.make_async_copy(x_hbm.at[pl.ds(8 * i, 8)], o_ref, sem)
        copy.start()

        @pl.when(i == 3)
        def _():
            for _ in range(4):
                copy.wait()
    found = hazards(kernel, grid=(4,), out_specs=ROWS, scratch_shapes=[pltpu.SemaphoreType.DMA])
    assert found and not [h for h in found if h.kind == "uninitialised" or "nobody has written" in h.message]


# -- where

def test_a_line_of_another_file_is_named_with_it(tmp_path):
    helper = tmp_path / "helper.py"
    helper.write_text("def start_all(x, buf, sem, copy):\n    copy(x, buf, sem).start()\n", encoding="utf-8")
    names: dict = {}
    exec(compile(helper.read_text(encoding="utf-8"), str(helper), "exec"), names)

    def kernel(x_hbm, o_ref, buf, sem):
        names["start_all"](x_hbm, buf, sem, pltpu.make_async_copy)
        o_ref[...] = buf[...]
        pltpu.make_async_copy(x_hbm, buf, sem).wait()
    [found] = hazards(kernel, scratch_shapes=SCRATCH)
    own = kernel.__code__.co_firstlineno + 2
    assert found.message == (f"the kernel reads buf (line {own}) while the copy x_hbm → buf (line 2 of helper.py) of "
                             "step 0 is still in flight.")
    assert found.mend == f"Wait for it first: {WHOLE} before line {own}."


def test_a_copy_onto_a_part_of_its_own_source_does_not_wait_for_itself():
    def kernel(x_hbm, o_hbm, sem):
        copy = pltpu.make_async_copy(x_hbm.at[pl.ds(0, 16)], o_hbm.at[pl.ds(8, 16)], sem)
        copy.start()
        copy.wait()
    in_hbm = pl.BlockSpec(memory_space=pl.ANY)
    x = jax.ShapeDtypeStruct((64, 128), jnp.float32)
    call = pl.pallas_call(kernel, x, in_specs=[in_hbm], out_specs=in_hbm, input_output_aliases={0: 0},
                          scratch_shapes=[pltpu.SemaphoreType.DMA])
    (found,) = call.trace(x).hazards
    assert found.kind == "hbm race" and "overwrites a part of its own source." in found.message
    assert found.mend == "Copy through a buffer that shares no memory with either end."
