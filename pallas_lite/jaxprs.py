"""jaxprs: what a traced kernel does to its refs, and how much it computes. Asked by body.py and traced.py."""
import math
from collections import Counter

import jax.numpy as jnp
import numpy as np


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


# What may decide where a kernel goes, as NumPy computes it from the positions of many steps at once.
_STEERING = {"get": np.asarray, "convert_element_type": np.asarray, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
             "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or}


def overwritten_first(jaxpr, ref, known) -> bool:
    """Does the kernel surely overwrite this ref whole before it reads it?

    `known`: variable -> its value in each of the steps that are asked about. A branch counts if all of them take it.
    """
    for e in jaxpr.eqns:
        given = [v.val if hasattr(v, "val") else known.get(v) for v in e.invars]
        if any(v is ref for v in e.invars):
            break
        if e.primitive.name in _STEERING and all(g is not None for g in given):
            known[e.outvars[0]] = _STEERING[e.primitive.name](*given).astype(e.outvars[0].aval.dtype)
    else:
        return False
    if e.primitive.name == "cond" and given[0] is not None and len(taken := set(np.ravel(given[0]).tolist())) == 1:
        branch = e.params["branches"][taken.pop()].jaxpr
        inside = {v: g for v, g in zip(branch.invars, given[1:], strict=True) if g is not None}
        same = next(v for v, o in zip(branch.invars, e.invars[1:], strict=True) if o is ref)
        return overwritten_first(branch, same, inside)
    used = [*jaxpr.outvars, *(v for e in jaxpr.eqns for v in e.invars)]
    return (e.primitive.name == "swap" and e.invars[1].aval.shape == ref.aval.shape
            and not any(v is e.outvars[0] for v in used))


def decides_loops(jaxpr, refs) -> set[int]:
    """The refs, by number, whose contents may decide how often a while loop of the kernel runs."""
    marks, before, found = {ref: {i} for i, ref in enumerate(refs)}, None, set[int]()
    while count(jaxpr, "while") and before != (before := [len(marks[ref]) for ref in refs]):
        found |= _decides(jaxpr, marks)  # what a step leaves in a ref may decide in the next
    return found


def _decides(jaxpr, marks: dict) -> set[int]:
    """The marks of what may decide how often a while loop runs. `marks`: variable -> marks.

    A ref's set is one object, inside and outside: it gets the marks of what is written to the ref.
    """
    found = set[int]()

    def enter(inner, given):
        inside = dict(zip(inner.invars, given, strict=True))
        found.update(_decides(inner, inside))
        return [set() if hasattr(v, "val") else inside.get(v, set()) for v in inner.outvars]
    for e in jaxpr.eqns:
        given = [set() if hasattr(v, "val") else marks.setdefault(v, set()) for v in e.invars]
        mixed, name = set().union(*given), e.primitive.name
        results = [mixed] * len(e.outvars)
        if name == "while":
            (cond, _), (body, _) = inner_jaxprs(e)
            n, m = (len(j.invars) - len(body.outvars) for j in (cond, body))
            results, before = given[n + m:], None
            while results != before:  # a round may decide about a later one
                before, after = results, enter(body, given[n:n + m] + results)
                results = [a | b for a, b in zip(results, after, strict=True)]
            found.update(*enter(cond, given[:n] + results))
        for inner, outer in inner_jaxprs(e) if name != "while" else ():
            if outer is not None:  # what a scan carries may be computed from all that it gets
                enter(inner, [mixed if name == "scan" and "Ref" not in type(v.aval).__name__ else g
                              for v, g in zip(outer, given[len(given) - len(outer):], strict=True)])
        if name in ("swap", "addupdate"):
            given[0].update(mixed)
        marks.update(zip(e.outvars, results, strict=True))
    return found


def count(jaxpr, name: str) -> int:
    """How many equations, at any depth, are of this primitive."""
    return sum((e.primitive.name == name) + sum(count(j, name) for j, _ in inner_jaxprs(e)) for e in jaxpr.eqns)


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
