"""manual_dma: kernels that start copies of their own (make_async_copy, run_scoped, emit_pipeline). Next: copies.py.

copies has what such a kernel says. step runs it in Python on the watched memory of buffers, orders runs parallel steps
backwards too, log makes its Schedule, and direct compiles it.
"""
