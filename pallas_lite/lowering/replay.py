"""replay: a kernel in what Mosaic GPU has: it is traced, and done again equation by equation. Next: mosaic_gpu.py.

A matmul becomes wgmma, the instruction of Hopper's matrix unit, which reads its operands where the copies left them, in
shared memory, and adds their product to a value in registers. So a whole block of an input is loaded only where
something other than a matmul reads it, and `a + jnp.dot(x, w)` is one wgmma on a.
"""
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pallas
from jax.experimental.pallas import mosaic_gpu as plgpu

from ..body import handing_on
from ..errors import NotSupportedError
from ..jaxprs import inner_jaxprs
from . import gpu

FLOAT16 = (jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16))


@dataclass(frozen=True)
class Block:
    """A whole block of an input, still in shared memory."""

    ref: Any
    shape: tuple[int, ...]
    dtype: Any
    transposed: bool = False

    @property
    def T(self):  # noqa: N802  as of an array
        return replace(self, shape=self.shape[::-1], transposed=not self.transposed)

    def window(self):
        return self.ref.transpose((1, 0)) if self.transposed else self.ref


@dataclass(frozen=True)
class Product:
    """A matmul that has not been done yet, of Blocks or (on the left) a value; its result is rounded to `dtype`."""

    lhs: Any
    rhs: Block
    dtype: Any


def added_up(traced) -> dict[str, gpu.Looking]:
    """The outputs and scratch that matmuls are added up in. They are values in registers, handed on from step to step.

    That is what is float32, of the shape of a matmul's result, read back, and read and written whole.
    """
    uses, matmuls = gpu.look(traced)
    shapes, inputs = {shape for _, _, shape in matmuls}, {x.name for x in traced.operands if not x.is_output}
    return {name: m for name, m in uses.items() if name not in inputs and m.shape in shapes and m.dtype == jnp.float32
            and m.is_read and not m.in_parts}


def replay(kernel, name, blocks, totals, values, interpret):
    """Run a kernel; returns what it leaves in the memories `totals`, which start at `values`.

    `kernel()` finds what `totals` and `blocks`, memories of inputs, hold in their `value`.
    """
    def trace(given, values):
        for memory, value in zip((*blocks, *totals), (*given, *values), strict=True):
            memory.value = value
        with handing_on(totals):
            kernel()
        return [m.value for m in totals]
    closed = jax.make_jaxpr(trace)([jax.ShapeDtypeStruct(b.shape, b.dtype) for b in blocks], values)
    again, given = Replay(name, interpret), [Block(b.ref, b.shape, b.dtype) for b in blocks]
    return [again.value(v) for v in again.run(closed.jaxpr, [*closed.consts, *given, *values])]


class Replay:
    """Does a traced kernel again. A method `_name` is what becomes of the primitive `name`."""

    def __init__(self, name, interpret):
        self.name, self.interpret = name, interpret

    def run(self, jaxpr, given):
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

        def read(v):
            return v.val if hasattr(v, "val") else env[v]
        for e in jaxpr.eqns:
            rule = getattr(self, f"_{e.primitive.name}", None)
            out = rule and rule(e, [read(v) for v in e.invars])
            if out is None:
                if any(list(gpu.matmuls(j, {})) for j, _ in inner_jaxprs(e)):
                    raise NotSupportedError(f"{self.name}: a matmul inside lax.{e.primitive.name} is not lowered to "
                                            "Mosaic GPU. Let the grid count what the loop counts, write it as a Python "
                                            'loop, or lower to "triton".')
                env.update((v, self.value(env[v])) for v in e.invars if isinstance(read(v), Product))
                out = e.primitive.bind(*(self.value(read(v)) for v in e.invars),
                                       **e.primitive.get_bind_params(e.params))
            env.update(zip(e.outvars, out if isinstance(out, (list, tuple)) else [out], strict=True))
        return [read(v) for v in jaxpr.outvars]

    def value(self, x):
        if isinstance(x, Block):
            return x.ref[...].T if x.transposed else x.ref[...]
        if isinstance(x, Product):
            return self.multiply(jnp.zeros((x.lhs.shape[0], x.rhs.shape[1]), jnp.float32), x).astype(x.dtype)
        return x

    def multiply(self, total, product):
        """total + product, in float32."""
        lhs, rhs = product.lhs, product.rhs
        if not self.interpret:
            left, right = lhs.window() if isinstance(lhs, Block) else lhs, rhs.window()
            return pallas.run_state(lambda ref: plgpu.wgmma(ref, left, right))(plgpu.ACC.init(total))
        # The interpreter looks for races where a ref is read, but not where wgmma reads it.
        left, right = self.value(lhs), self.value(rhs)
        if not isinstance(lhs, Block) or lhs.transposed or rhs.transposed:  # it has no such wgmma
            return total + jnp.dot(left, right, preferred_element_type=jnp.float32)

        def multiply(ref):  # nor an accumulator that starts at a value
            plgpu.wgmma(ref, lhs.ref, rhs.ref)
            return ref[...]
        return total + pallas.run_scoped(multiply, plgpu.ACC(total.shape, jnp.float32))

    # -- what becomes of a primitive; None: it is done again as it is

    def _inside(self, e, given):
        closed = e.params["call_jaxpr"] if "call_jaxpr" in e.params else e.params["jaxpr"]
        return self.run(closed.jaxpr, [*closed.consts, *given])

    _jit = _pjit = _custom_jvp_call = _inside

    def _cond(self, e, given):
        (index, *given), branches = given, e.params["branches"]
        # What all branches hand through stays where it is: an accumulator is many registers, and moving it is dear.
        outs = [[b.jaxpr.invars.index(v) if v in b.jaxpr.invars else None for v in b.jaxpr.outvars] for b in branches]
        through = [at[0] if len(set(at)) == 1 else None for at in zip(*outs, strict=True)]

        def branch(closed):
            found = self.run(closed.jaxpr, [*closed.consts, *given])
            return [self.value(v) for v, at in zip(found, through, strict=True) if at is None]
        fills = all(i.primitive.name == "broadcast_in_dim" for b in branches for i in b.jaxpr.eqns)
        if fills and len(branches) == 2:
            new = [self._select_n(e, [index != 0, *cases]) for cases in zip(*map(branch, branches), strict=True)]
        else:
            new = lax.switch(index, [partial(branch, b) for b in branches])
        new = iter(new)
        return [next(new) if at is None else given[at] for at in through]

    def _select_n(self, e, given):  # Mosaic GPU does not broadcast by itself
        which, *cases = map(self.value, given)
        return lax.select_n(jnp.broadcast_to(which, cases[0].shape), *cases)

    def _transpose(self, e, given):
        return given[0].T if isinstance(given[0], Block) and len(given[0].shape) == 2 else None

    def _add(self, e, given):
        total, product = given if isinstance(given[1], Product) else given[::-1]
        if isinstance(product, Product) and product.dtype == jnp.float32:
            return self.multiply(self.value(total), product)

    def _dot_general(self, e, given):
        lhs, rhs = (self.value(x) if isinstance(x, Product) else x for x in given)
        contract, batch = e.params["dimension_numbers"]
        plain = len(lhs.shape) == len(rhs.shape) == 2 and not any(batch) and [*map(len, contract)] == [1, 1]
        if plain:
            lhs, rhs = lhs if contract[0][0] == 1 else lhs.T, rhs if contract[1][0] == 0 else rhs.T
        why = not_for_wgmma(lhs, rhs, e.params["precision"]) if plain else TWO_MATRICES
        if why:
            a, b = (f"{v.aval.dtype}{list(v.aval.shape)}" for v in e.invars)
            raise NotSupportedError(f'{self.name}: the matmul of {a} and {b}: {why}; or lower to "triton".')
        return Product(lhs, rhs, e.outvars[0].aval.dtype)


TWO_MATRICES = ("wgmma multiplies two matrices. Give blocks of two dimensions (a None in block_shape takes one away)")


def not_for_wgmma(lhs, rhs, precision) -> str | None:
    """Why wgmma does not multiply two matrices, (m, k) and (k, n), and what to do; None if it does."""
    (m, k), n, wide = lhs.shape, rhs.shape[1], rhs.dtype == jnp.float32
    if not isinstance(rhs, Block):
        return ("wgmma reads its right-hand side from shared memory. Let that be the whole block of an input "
                "(w_ref[...]), as it was copied")
    if lhs.dtype != rhs.dtype or not (wide or rhs.dtype in FLOAT16):
        return ("wgmma multiplies two of bfloat16, of float16, or of float32 (as tf32). Cast the arrays before the "
                "call")
    if wide and "HIGHEST" in str(precision):
        return "wgmma rounds float32 to tf32, and precision=HIGHEST forbids it. Ask for less"
    if wide and (not isinstance(lhs, Block) or lhs.transposed or not rhs.transposed):
        return ("wgmma takes float32 from shared memory, with k along the rows: whole blocks of x[m, k] and w[n, k]. "
                "Give w transposed, and write jnp.dot(x_ref[...], w_ref[...].T); or give bfloat16")
    for what, size, multiple in (("m", m, 64), ("k", k, 8 if wide else 16), ("n", n, 8 if rhs.transposed else 16)):
        if size % multiple:
            return f"wgmma takes {what} in multiples of {multiple}. Choose such a block_shape"
