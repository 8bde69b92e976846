"""lowering: a traced call -> a program for an accelerator, on a machine that has none. Next: platforms.py.

TPU: mosaic_tpu (the pipeline's engine), tiles (what the compiler asks of a block), mosaic (the program: text, VMEM),
libtpu (the compiler). GPU: gpu (axes and blocks), mosaic_gpu (the pipeline's engine; replay makes its matmuls), triton
(which pipelines by itself), cuda (both programs, and the compiler). Their common face is stages.
"""
