"""One table of machines: every number has its source, and each unit its own rate for each dtype."""
import re

import jax
import jax.numpy as jnp
import pytest

import pallas_lite as pl
from pallas_lite import hardware
from pallas_lite import tpu as pltpu
from pallas_lite.errors import SpecError
from pallas_lite.hardware import A100, H100, H200, TOY, TPU_V5E, TPU_V5P, TPU_V6E, Machine

MACHINES = [m for m in vars(hardware).values() if isinstance(m, Machine)]
PUBLISHERS = ("Google", "NVIDIA", "JAX", "jax", "the TPU compiler", '"How to Scale Your Model"')
shape = jax.ShapeDtypeStruct


def test_every_number_of_a_real_machine_names_publisher_and_document_or_is_marked_assumed():
    for m in MACHINES:
        if m is TOY:
            assert m.sources == {"all": "made up for teaching"}
            continue
        numbers = {"alpha", "beta", "flops", "matmul_flops", "sram_bytes", "physical_sram_bytes",
                   *(f"vector {d}" for d in m.vector), *(f"matrix {d}" for d in m.matrix)}
        assert numbers - {"physical_sram_bytes"} <= set(m.sources) <= numbers
        for number, source in m.sources.items():
            assert "assumed" in source or any(p in source for p in PUBLISHERS), (
                f"{m.name}, {number}: name the publisher (a new one goes into PUBLISHERS) and the document, or "
                "say assumed")


def test_there_is_one_row_a_number():
    keys = re.findall(r"(?m)^([^|\n]+\|[^|]+)\|", hardware.TABLE)
    assert len(keys) == len(set(keys)) >= 47


@pytest.mark.parametrize("row", ["L4 | sram_bytes | 99 KB | NVIDIA", "L4 | sram_bytes | 99 | NVIDIA",
                                 "L4 | bita | 3e11 B/s | NVIDIA", "L4 | beta | 3e11 B/s"])
def test_a_row_that_is_none_is_named_with_what_a_row_has(monkeypatch, row):
    monkeypatch.setattr(hardware, "TABLE", hardware.TABLE + row + "\n")
    with pytest.raises(ValueError, match=rf"'{re.escape(row)}' is no row .*value and unit \(s, B/s, op/s, KiB, MiB\)"):
        hardware._machine("L4")


def test_one_kernel_may_use_less_sram_than_there_is():
    mib, kib = 2**20, 2**10
    assert [m.sram_bytes for m in (TPU_V5E, TPU_V5P, TPU_V6E)] == [16 * mib, 16 * mib, 32 * mib]
    assert [m.sram_bytes for m in (A100, H100, H200)] == [163 * kib, 227 * kib, 227 * kib]
    for m in MACHINES:
        assert m.sram_bytes <= m.physical_sram_bytes or not m.physical_sram_bytes, m.name
    assert TPU_V5P.physical_sram_bytes == 64 * mib - 64 * 2**10  # 63.94 MiB
    assert "96 MB" in TPU_V5P.sources["physical_sram_bytes"]  # what the tutorial says


def test_rates_are_by_unit_and_dtype():
    assert H100.rate("vector", "float32") == 67e12 and H100.rate("vector", "bfloat16") == 133.8e12
    assert H100.rate("matrix", "bfloat16") == H100.rate("matrix", "float16") == 989e12
    assert H100.rate("matrix", "float8_e4m3fn") == H100.rate("matrix", "float8_e5m2") == 1979e12
    assert TPU_V5E.rate("vector", "bfloat16") == TPU_V5E.flops  # its vector unit has no bfloat16
    assert TPU_V5E.rate("matrix", "int8") == 393e12
    assert TOY.with_(flops=5.0).rate("vector", "bfloat16") == 5.0


def call(kernel, dtype, n=128):
    return pl.pallas_call(kernel, shape((n, n), dtype)).trace(shape((n, n), dtype), shape((n, n), dtype))


@pytest.mark.parametrize("machine", [TPU_V5E, TPU_V6E, H100])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_an_add_takes_the_vector_unit_and_a_product_the_matrix_unit(machine, dtype):
    def add(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    def dot(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...])
    assert call(add, dtype).schedule.work == (("vector", dtype, 128.0**2),)
    assert call(add, dtype).timeline(machine).busy == pytest.approx(128**2 / machine.rate("vector", dtype))
    assert call(dot, dtype).schedule.work == (("matrix", dtype, 2 * 128.0**3),)
    assert call(dot, dtype).timeline(machine).busy == pytest.approx(2 * 128**3 / machine.rate("matrix", dtype))


def test_units_work_one_after_the_other_and_an_estimate_is_shared_as_the_kernel_does():
    def layer(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.maximum(jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32), 0.0)
    traced = pl.pallas_call(layer, shape((128, 128), jnp.float32)).trace(*[shape((128, 128), jnp.bfloat16)] * 2)
    assert traced.schedule.work == (("matrix", "bfloat16", 2 * 128.0**3), ("vector", "float32", 128.0**2))
    assert traced.schedule.flops == 2 * 128**3 + 128**2
    one = traced.timeline(TPU_V5E).busy
    assert one == pytest.approx(2 * 128**3 / 197e12 + 128**2 / 6.1e12)
    twice = pl.pallas_call(layer, shape((128, 128), jnp.float32), cost_estimate=pl.CostEstimate(
        flops=2 * int(traced.schedule.flops))).trace(*[shape((128, 128), jnp.bfloat16)] * 2)
    assert twice.timeline(TPU_V5E).busy == pytest.approx(2 * one)


def test_other_integers_have_no_matrix_unit():
    def dot(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...])
    assert call(dot, "int32").schedule.work == (("vector", "int32", 2 * 128.0**3),)


def copy_kernel(x_ref, o_ref, *scratch):
    o_ref[...] = x_ref[...]


def trace(b, n=4096, scratch=(), **params):
    spec = pl.BlockSpec((b, b), lambda i, j: (i, j))
    f = pl.pallas_call(copy_kernel, shape((n, n), jnp.float32), grid=(pl.cdiv(n, b),) * 2, in_specs=[spec],
                       out_specs=spec, scratch_shapes=scratch, compiler_params=pltpu.CompilerParams(**params))
    return f.trace(shape((n, n), jnp.float32))


def test_sram_that_does_not_fit_is_refused_item_by_item_and_still_timed():
    t = trace(1024, scratch=[pltpu.VMEM((1024, 512), jnp.float32), pltpu.SMEM((8,), jnp.int32)]).timeline(TPU_V5E)
    assert t.total > 0
    [hazard] = t.hazards
    assert hazard.kind == "sram"
    assert hazard.message == t.sram_report == """\
It needs 18,874,368 bytes of SRAM; one kernel has 16,777,216 on TPU v5e, over by 2,097,152.
  in0: 2 × 4,194,304 (float32[1024, 1024]) = 8,388,608 bytes
  out0: 2 × 4,194,304 (float32[1024, 1024]) = 8,388,608 bytes
  scratch0: scratch (float32[1024, 512]) = 2,097,152 bytes"""
    assert hazard.mend == ("Use smaller blocks or fewer slots (Buffered(n)), first of all for in0; on a TPU, "
                           "CompilerParams(vmem_limit_bytes=…) gives up to 134,217,728.")
    assert str(t).endswith(f"{hazard.message}\n  {hazard.mend}")


def test_sram_that_fits_is_listed_with_what_is_left():
    t = trace(1024).timeline(TPU_V5E)
    assert t.hazards == [] and "SRAM" not in str(t)  # 16 MiB to the byte
    t = trace(512).timeline(TPU_V5E)
    assert "on TPU v5e, 12,582,912 are left for the body's temporaries" in t.sram_report


def test_vmem_limit_bytes_lifts_the_limit_up_to_what_there_is():
    assert trace(2048).timeline(TPU_V5E).hazards
    assert not trace(2048, vmem_limit_bytes=100 * 2**20).timeline(TPU_V5E).hazards
    [hazard] = trace(2048, vmem_limit_bytes=100 * 2**20).timeline(TPU_V5P).hazards
    assert "one kernel has 67,043,328" in hazard.message and "vmem_limit_bytes" not in hazard.mend


def test_a_copy_past_the_edge_moves_the_inside_only():
    t = trace(48, n=100).timeline(TPU_V5E)
    assert t.hbm_bytes == {"in": 40_000, "out": 40_000, "total": 80_000}  # each element of 100 × 100 once
    first, edge = (s.seconds for s in t.spans if s.label in ("x[0, 0]", "x[2, 2]"))
    assert first == pytest.approx(48 * 48 * 4 / 819e9) and edge == pytest.approx(4 * 4 * 4 / 819e9)
    assert t.intensity == 0.0


@pytest.mark.parametrize("platform", ["tpu", "triton"])
def test_compilers_can_be_switched_off_as_in_the_grading_sandbox(platform, monkeypatch):
    monkeypatch.setenv("PALLAS_LITE_NO_COMPILER", "1")
    x = jax.ShapeDtypeStruct((128, 128), "float32")
    call = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1), x)
    with pytest.raises(pl.NotSupportedError, match="compiler is switched off here"):
        call.trace(x).lower(platform).compile()


@pytest.mark.parametrize("change", [{"alpha": -1.0}, {"beta": 0}, {"flops": -2e9}, {"matmul_flops": float("nan")},
                                    {"sram_bytes": 0}])
def test_a_machine_that_cannot_be_is_refused(change):
    (name, value), = change.items()
    with pytest.raises(SpecError, match=re.escape(f"no machine has {name} = {value:g}: alpha is 0 or more")):
        TOY.with_(**change)


def test_a_rate_is_of_a_unit_that_there_is_and_of_a_dtype_by_name_or_not():
    assert H100.rate("matrix", jnp.float8_e4m3fn) == 1979e12 and H100.rate("vector", jnp.dtype("bfloat16")) == 133.8e12
    with pytest.raises(SpecError, match="'matrx'"):
        H100.rate("matrx", "bfloat16")
