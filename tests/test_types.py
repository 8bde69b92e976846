"""The public face has types: every name says what it takes and gives, and a type checker tells right from wrong use."""
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import autograder
import pallas_lite as pl
from pallas_lite import tpu as pltpu
from pallas_lite.call import Call, Calls
from pallas_lite.explorers.base import Explorer
from pallas_lite.hardware import Machine
from pallas_lite.lowering.stages import Compiled, Lowered
from pallas_lite.refs import Ref
from pallas_lite.schedule import OperandInfo
from pallas_lite.timeline import Span
from pallas_lite.traced import Traced

ROOT = Path(__file__).resolve().parent.parent
OURS = ("pallas_lite", "autograder")
# What programs meet without naming it: what a call returns, what a kernel holds, what a schedule and a timeline list.
MET = [Call, Calls, Traced, Lowered, Compiled, Ref, OperandInfo, Span, Machine, Explorer]
FACE = {f"{module.__name__}.{name}": value for module in (pl, pltpu, autograder) for name in dir(module)
        if not name.startswith("_") and not isinstance(value := getattr(module, name), ModuleType)}
FACE |= {f"{kind.__module__}.{kind.__name__}": kind for kind in MET}
CALLED = {"__call__", "__init__", "__getitem__", "__setitem__", "__len__"}


def functions(value):
    """The functions of a public name, by their names: itself, or the public methods and properties of a class."""
    if not inspect.isclass(value):
        return {"": value} if inspect.isfunction(value) else {}
    found = {name: inspect.unwrap(getattr(f, "fget", None) or getattr(f, "func", None) or getattr(f, "__func__", f))
             for name, f in vars(value).items() if not name.startswith("_") or name in CALLED}
    return {name: f for name, f in found.items() if inspect.isfunction(f) and f.__module__.startswith(OURS)}


@pytest.mark.parametrize("name", FACE)
def test_every_public_name_says_what_it_takes_and_gives(name):
    for method, f in functions(FACE[name]).items():
        signature = inspect.signature(f)
        silent = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
        assert not silent, f"{name} {method}: annotate {', '.join(silent)}"
        assert signature.return_annotation is not signature.empty, f"{name} {method}: annotate what it returns"


RIGHT = '''
import jax
import jax.numpy as jnp
import numpy as np
import pallas_lite as pl
from pallas_lite import tpu as pltpu
from autograder import Handle, Trial, Wrong, check, exercise

def add(x_ref, o_ref, scratch_ref):
    @pl.when(pl.program_id(0) == 0)
    def _():
        scratch_ref[...] = jnp.zeros(8)
    o_ref[...] = x_ref[pl.ds(0, 8)] + 1

spec = pl.BlockSpec((8,), lambda i: (i,), pipeline_mode=pl.Buffered(3))
shape = jax.ShapeDtypeStruct((64,), jnp.float32)
f = pl.pallas_call(add, out_shape=shape, grid=8, in_specs=[spec], out_specs=spec,
                   scratch_shapes=[pltpu.VMEM((8,), jnp.float32)], interpret=pl.InterpretParams(random_seed=1),
                   compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)), on_hazard="raise")
y: jax.Array = f(np.ones(64, np.float32))
trace = f.trace(shape)
s: pl.Schedule = trace.schedule
found: list[pl.Hazard] = trace.hazards + pl.verify(s)
steps: list[int] = [event.step for event in s]
t: pl.Timeline = trace.timeline(pl.hardware.TPU_V5E.with_(alpha=1e-6))
seconds: float = t.total * t.utilisation
program: str = trace.lower("tpu").as_text() + str(s.rolled().steps)
pl.plot_timeline(t, hazards=found).set_title("so")
pl.plot_grid(trace, "x")

def loop(N, A, X, Y, B):
    for i in range(N):
        pl.copy_in_start(A[i], X[0])
pl.show(pl.record(loop, 4, depth=(1, 2)))

@exercise("99.1", "A title", points=2)
def right(answer: Handle, trial: Trial) -> None:
    for n in trial.pick(visible=(1, 2), hidden=range(9)):
        if hazards := pl.verify(answer.schedule(n)):
            raise Wrong("no", case=f"{n}", hazard=hazards[0])
points: float = check("99.1", loop).points
'''
# Each line that ends with "wrong" must be refused, and no other.
WRONG = '''
import jax
import jax.numpy as jnp
import pallas_lite as pl
from pallas_lite import tpu as pltpu
from autograder import exercise
shape = jax.ShapeDtypeStruct((64,), jnp.float32)
kernel = lambda x_ref, o_ref: None
pl.palas_call(kernel, shape)  # wrong
pl.load  # wrong: it is Pallas', and not here
pl.pallas_call(kernel, shape, gird=8)  # wrong
pl.pallas_call(kernel, shape, grid="8")  # wrong
pl.pallas_call(kernel, shape, in_specs=[(8,)])  # wrong
pl.pallas_call(kernel, (64,))  # wrong: no dtype
pl.pallas_call(kernel, shape, on_hazard="rise")  # wrong
pl.pallas_call(kernel, shape, scratch_shapes=[pl.BlockSpec((8,))])  # wrong
pl.pallas_call(kernel, shape, input_output_aliases=[(0, 0)])  # wrong
pl.BlockSpec(lambda i: (i,), (8,))  # wrong: swapped
pl.BlockSpec((8,), lambda i: (i,), pipeline_mode=3)  # wrong
pl.Buffered("3")  # wrong
pl.InterpretParams(dma_execution_mode="late")  # wrong
pltpu.VMEM(8, jnp.float32)  # wrong
pltpu.CompilerParams(dimension_semantic=("parallel",))  # wrong
trace = pl.pallas_call(kernel, shape).trace(shape)
trace.sheddule  # wrong
trace.timeline("TPU_V5E")  # wrong
trace.timeline(pl.hardware.TPU_V6)  # wrong
seconds: str = trace.timeline().total  # wrong
trace.schedule[0].blok  # wrong
trace.schedule.rolled().step  # wrong
pl.plot_timeline(trace.schedule)  # wrong
pl.verify(trace)  # wrong
pl.record(4, lambda N, A, X, Y, B: None)  # wrong
pl.copy_in_start(0, 1)  # wrong
pl.explore(trace.schedule)  # wrong
exercise("99.1", "A title")  # wrong: no points
exercise("99.1", "A title", points=1)(lambda answer: None)  # wrong
'''


def test_a_type_checker_takes_right_programs_and_refuses_wrong_ones(tmp_path):
    """And the face itself: mypy reads the files that pyproject.toml names beside the two programs."""
    programs = {"right.py": RIGHT, "wrong.py": WRONG}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
    face = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]
    files = [*face, *(tmp_path / name for name in programs)]
    done = subprocess.run([sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", *files], cwd=ROOT,
                          env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True)
    refused = re.findall(r"^(.*?):(\d+): error: (.*)", done.stdout, re.MULTILINE)
    here = {int(line) for path, line, _ in refused if path.endswith("wrong.py")}
    wanted = {n for n, line in enumerate(WRONG.splitlines(), 1) if "# wrong" in line}
    others = [f"{path}:{line}: {what}" for path, line, what in refused if not path.endswith("wrong.py")]
    assert not others and not done.stderr, "\n".join([*others, done.stderr])
    assert here == wanted, f"taken: {sorted(wanted - here)}, refused without reason: {sorted(here - wanted)}"
