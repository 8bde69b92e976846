"""The roofline picture: what is drawn is what the machine and the schedules say."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_lite as pl
from pallas_lite.hardware import H100, TOY, TPU_V5E


def drawn(machine, kernels, **options):
    """The dots (x, y), in order, and all texts of a roofline."""
    ax = pl.plot_roofline(machine, kernels, **options)
    dots = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    return dots, [t.get_text() for t in ax.texts], ax


def add(n):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]
    x = jax.ShapeDtypeStruct((n, n), jnp.float32)
    return pl.pallas_call(kernel, x).trace(x, x)


def matmul(n):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...])
    x = jax.ShapeDtypeStruct((n, n), jnp.bfloat16)
    return pl.pallas_call(kernel, x).trace(x, x)


def test_a_schedule_is_a_dot_on_the_roof_of_its_unit():
    dots, texts, _ = drawn(TPU_V5E, {"add": add(256).schedule, "small": matmul(128).schedule,
                                     "large": matmul(2048).schedule})
    assert dots[0] == pytest.approx((1 / 12, 819e9 / 12))
    assert dots[1] == pytest.approx((128 / 3, 819e9 * 128 / 3))
    assert dots[2] == pytest.approx((2048 / 3, 197e12))
    assert {"add", "small", "large", "vector unit, float32: 6.1·10¹² op/s",
            "matrix unit, bfloat16: 197·10¹² op/s"} <= set(texts)


def test_a_timeline_is_a_dot_below_the_roof():
    t = add(256).timeline(TPU_V5E)
    [(x, y)], _, _ = drawn(TPU_V5E, {"add": t})
    assert x == pytest.approx(1 / 12) and y == pytest.approx(256 * 256 / t.total) and y < x * 819e9


def test_a_kernel_may_be_numbers_and_a_dtype_brings_its_own_roof():
    dots, texts, _ = drawn(H100, {"adds": 0.5, "fp8": (1e4, "matrix", "float8_e4m3fn")})
    np.testing.assert_allclose(dots, [(0.5, 3.35e12 / 2), (1e4, 1979e12)])
    assert "matrix unit, float8_e4m3fn: 1.979·10¹⁵ op/s" in texts


def test_corners_are_where_the_unit_becomes_the_limit():
    _, texts, _ = drawn(TPU_V5E, {})
    assert {f"{6.1e12 / 819e9:.3g}", f"{197e12 / 819e9:.3g}"} <= set(texts)


def test_with_a_port_each_way_both_count():
    assert drawn(TOY, {"a": 0.25})[0] == [(0.25, 0.5e9)]
    t = pl.pallas_call(lambda x_ref, o_ref: o_ref.__setitem__(..., x_ref[...] + 1), jnp.zeros(1000, jnp.int8)).trace(
        jnp.zeros(1000, jnp.int8)).timeline(TOY)
    [(_, y)], _, _ = drawn(TOY, {"t": t})
    assert y == pytest.approx(1000 / t.total)


def test_it_draws_on_the_axes_that_it_is_given():
    _, _, ax = drawn(TPU_V5E, {"a": 1.0}, title="mine")
    assert pl.plot_roofline(TPU_V5E, {"a": 1.0}, ax) is ax
    assert drawn(TPU_V5E, {}, title="mine")[2].get_title(loc="left") == "mine"


@pytest.mark.parametrize("kernel, says", [
    ("add", "a kernel is a schedule, a timeline"), ((3.0, "core", "float32"), 'The unit is "vector" or "matrix"'),
    (0.0, "its intensity is 0"), (float("inf"), "its intensity is inf"), ((3.0, "matrix"), "a kernel is a schedule")])
def test_anything_else_is_refused_by_name(kernel, says):
    with pytest.raises(pl.SpecError, match="mine") as error:
        pl.plot_roofline(TPU_V5E, {"mine": kernel})
    assert says in str(error.value)


def test_a_timeline_of_another_machine_is_refused():
    with pytest.raises(pl.SpecError, match="TPU v5e.* H100 SXM"):
        pl.plot_roofline(H100, {"add": add(64).timeline(TPU_V5E)})
    with pytest.raises(pl.SpecError, match="takes a machine"):
        pl.plot_roofline("H100", {})
