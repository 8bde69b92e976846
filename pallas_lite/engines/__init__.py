"""engines: what the pipeline's verbs (pipeline.py) become.

record writes them down as a Schedule, which simulate plays on values, copy by copy; xla is one compiled loop, for a
schedule that is free of races. Those that make programs for accelerators are in lowering/.
"""
