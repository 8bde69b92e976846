"""engines: what runs, or becomes a program.

The pipeline's verbs (pipeline.py): record writes them down as a Schedule; tpu and mosaic_gpu make programs of them, and
triton makes one of a call that Triton pipelines itself (gpu has what the two share).
A Schedule on values: simulate plays it copy by copy; xla is one compiled loop, for a schedule that is free of races.
A kernel with copies of its own (manual.py): step runs it on the watched memory of buffers, log makes its Schedule, and
direct compiles it.
"""
