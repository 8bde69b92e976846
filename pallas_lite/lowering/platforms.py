"""platforms: a traced call -> a program for an accelerator, once the call is proven right.

    lowered = f.trace(x, y).lower("tpu")     # needs nothing but jax
    print(lowered.summary())                 # each DMA of the program beside its entry in the schedule
    lowered.compile("v5e").cost_analysis()   # calls the vendor's compiler, if it is installed
"""
from ..errors import NotSupportedError, PallasLiteError, SpecError
from . import cuda, mosaic
from .stages import Lowered, unknown

PLATFORMS = {"tpu": mosaic.TpuLowered, "triton": cuda.TritonLowered, "mosaic_gpu": cuda.MosaicGpuLowered,
             "gpu": cuda.TritonLowered}


def lower(traced, platform: str | None) -> Lowered:
    """The call as a program for `platform`. Its other hazards are reported as its `on_hazard` says, as under jax.jit.

    Raises PallasLiteError for a call with a race or a copy left open: the programs do not check again what is proven
    here. Raises NotSupportedError for another platform, and for blocks that are only known when the program runs.
    """
    if platform is None:  # jax's own lower() has no argument, so this is easily forgotten
        raise SpecError(f'{traced.call.name}: which accelerator? traced.lower("tpu"), or one of '
                        f"{', '.join(map(repr, PLATFORMS))}.")
    if platform not in PLATFORMS:
        raise unknown(traced.call.name, "lowering for", platform, PLATFORMS)
    if traced.blocks_from_scalars:
        raise NotSupportedError(f"{traced.call.name}: the blocks of {', '.join(traced.blocks_from_scalars)} depend on "
                                "traced scalars, so nobody can prove the program before it runs. Trace the call on "
                                "concrete scalars, outside of jax.jit.")
    if traced.races:
        raise PallasLiteError(f"{traced.call.name}: only a program that is free of races is lowered, and this one has: "
                              f"{traced.races[0]}")
    lowered = PLATFORMS[platform](traced.in_grid_order)  # a program counts the grid in its order
    traced.report(traced.hazards, traced.proviso)
    return lowered
