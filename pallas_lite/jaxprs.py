"""jaxprs: what a traced kernel does to its refs, and how much it computes. Asked by body.py and traced.py."""
import math
from collections import Counter

import jax.numpy as jnp


def inner_jaxprs(eqn):
    """The jaxprs inside an equation, each with the outer variables that its own inputs stand for."""
    if eqn.primitive.name == "while":
        n, m = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        yield eqn.params["cond_jaxpr"].jaxpr, [*eqn.invars[:n], *eqn.invars[n + m:]]
        yield eqn.params["body_jaxpr"].jaxpr, eqn.invars[n:]
        return
    for p in eqn.params.values():
        for j in p if isinstance(p, (tuple, list)) else [p]:
            j = getattr(j, "jaxpr", j)
            if hasattr(j, "eqns"):
                outer = eqn.invars[len(eqn.invars) - len(j.invars):]  # cond has its predicate in front
                yield j, outer if len(outer) == len(j.invars) else None


def writes(jaxpr, ref) -> bool:
    """May the kernel write this ref?"""
    for e in jaxpr.eqns:
        if not any(v is ref for v in e.invars) or e.primitive.name == "get":
            continue
        inner = list(inner_jaxprs(e))
        if not inner or any(outer is None for _, outer in inner):
            return True  # a write, or something that cannot be looked through
        if any(writes(j, v) for j, outer in inner for v, o in zip(j.invars, outer, strict=True) if o is ref):
            return True
    return False


def overwritten_first(jaxpr, ref) -> bool:
    """Does the kernel surely overwrite this ref whole before it reads it?"""
    first = next((e for e in jaxpr.eqns if any(v is ref for v in e.invars)), None)
    if first is None or first.primitive.name != "swap" or first.invars[1].aval.shape != ref.aval.shape:
        return False
    old = first.outvars[0]
    return not any(v is old for e in jaxpr.eqns for v in e.invars) and not any(v is old for v in jaxpr.outvars)


# Operations on indices, shapes and types move data; they are not arithmetic on it.
_FREE = {"broadcast_in_dim", "reshape", "transpose", "convert_element_type", "get", "swap", "slice",
         "squeeze", "concatenate", "iota", "copy", "dynamic_slice", "dynamic_update_slice", "addupdate",
         "split", "new_ref", "freeze"}


def count_work(jaxpr) -> Counter:
    """(unit, dtype) -> operations. Of a cond's branches the longer counts; of a while loop, one round."""
    total = Counter()
    for e in jaxpr.eqns:
        if e.params.get("name") == "moves_data":  # refs.no_arithmetic
            continue
        inner = [count_work(j) for j, _ in inner_jaxprs(e)]
        results = e.outvars[0].aval.shape if e.outvars else ()
        if e.primitive.name == "cond":
            total += max(inner, key=Counter.total)
        elif inner:
            for counts in inner:
                total += Counter({k: n * e.params.get("length", 1) for k, n in counts.items()})
        elif e.primitive.name == "dot_general":
            (contract, _), _ = e.params["dimension_numbers"]
            a, b = (v.aval for v in e.invars[:2])
            wide = max(a.dtype, b.dtype, key=lambda d: d.itemsize)
            # The matrix unit multiplies floats and bytes; other integers take the vector unit.
            unit = "matrix" if jnp.issubdtype(wide, jnp.floating) or wide.itemsize == 1 else "vector"
            total[unit, str(wide)] += 2 * math.prod(results) * math.prod(a.shape[d] for d in contract)
        elif e.primitive.name not in _FREE and results or e.primitive.name.startswith(("reduce_", "cum")):
            # Scalars steer the kernel (program_id comparisons); they do not occupy the vector unit.
            reads = e.primitive.name.startswith(("reduce_", "cum"))
            shape = e.invars[0].aval.shape if reads else results
            total["vector", str((e.invars or e.outvars)[-1].aval.dtype)] += math.prod(shape)
    return total
