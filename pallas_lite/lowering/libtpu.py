"""libtpu: the TPU compiler, which needs no TPU: a JAX function -> a program for a chip. Next: mosaic.py."""
import contextlib
import functools
import importlib.metadata
import importlib.util
import itertools
import os
import pickle
import subprocess
import sys
import threading

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from ..errors import NotSupportedError

TRIED = {(0, 10): "0.0.42", (0, 12): "0.0.50"}  # jax -> the libtpu that it asks for
CALM = "0.0.42."  # this version refuses what it cannot do; 0.0.50 was seen to abort its process instead
_one_at_a_time, _numbers = threading.Lock(), itertools.count()


def version() -> str:
    """Of the installed compiler. Raises NotSupportedError if there is none, or it may not run here."""
    if os.environ.get("PALLAS_LITE_NO_COMPILER"):
        raise NotSupportedError("the TPU compiler is switched off here (PALLAS_LITE_NO_COMPILER is set).")
    if importlib.util.find_spec("libtpu") is None:
        raise NotSupportedError('the TPU compiler is not installed: pip install "pallas_lite[tpu]" (libtpu, for Linux '
                                "on x86-64). It needs no TPU.")
    return importlib.metadata.version("libtpu")


def mismatch() -> str:
    """A sentence if this libtpu is another than the one that this jax was tried with; else nothing."""
    tried = TRIED.get(jax.__version_info__[:2])
    if tried is None or version().startswith(f"{tried}."):
        return ""
    return (f" libtpu is {version()}, but jax {jax.__version__} asks for {tried}: "
            'pip install "pallas_lite[tpu]" brings it.')


def compiled(function, avals, topology: str) -> jax.stages.Compiled:
    """What the compiler makes of a function. Raises what it raises; RuntimeError where it would end the process."""
    if not version().startswith(CALM):
        _rehearse(jax.export.export(jax.jit(function), platforms=["tpu"])(*avals).serialize(), topology)
    return _compile(function, avals, topology)


def _compile(function, avals, topology):
    placed = SingleDeviceSharding(_device(topology))
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=placed) for a in avals]
    return jax.jit(function, out_shardings=placed).lower(*avals).compile()


@functools.cache
def _device(topology):
    """A chip to compile for. No metadata server is asked and no lock taken: nothing here wants a real TPU."""
    for name, value in {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4", "TPU_WORKER_ID": "0",
                        "TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}.items():
        os.environ.setdefault(name, value)
    return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]


# -- a process in which the compiler may die

def _rehearse(program: bytes, topology: str) -> None:
    """Compile in a process of its own first: an abort there becomes an error here, and this process lives."""
    with _one_at_a_time:
        stage, said, done = _stage(os.getpid()), [], f"done {next(_numbers)}\n".encode()
        with contextlib.suppress(BrokenPipeError):
            pickle.dump((program, topology, done), stage.stdin)
            stage.stdin.flush()
            for line in stage.stdout:
                if line == done:
                    return
                said.append(line.decode(errors="replace"))
        _stage.cache_clear()
    why = next((line for line in said if "Check failed" in line), "".join(said[-5:]))
    raise RuntimeError(f"libtpu {version()} ended its process, which was not this one: {why.strip()}")


@functools.cache
def _stage(pid):
    """The process, started once: it takes about two seconds. It ends with this one; Ctrl-C is not for it."""
    # LIBTPU_INIT_ARGS are not for it either: what they make the compiler print or dump is wanted once.
    environment = {name: value for name, value in os.environ.items() if name != "LIBTPU_INIT_ARGS"}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen([sys.executable, "-c", f"from {__name__} import perform; perform()"], env=environment,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            start_new_session=True)


def perform() -> None:
    """Compile what comes in, and say so after each. What the compiler refuses is no matter: it will do so again."""
    with contextlib.suppress(EOFError):
        while True:
            program, topology, done = pickle.load(sys.stdin.buffer)
            with contextlib.suppress(Exception):
                exported = jax.export.deserialize(program)
                _compile(exported.call, exported.in_avals, topology)
            os.write(1, b"\n" + done)
