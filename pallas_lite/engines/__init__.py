"""engines: what the pipeline becomes.

record takes its verbs (pipeline.py) and writes them down as a Schedule. That one simulate plays on values, copy by
copy; xla is one compiled loop, for a schedule that is free of races. Engines that make programs for accelerators of the
verbs are in lowering/.
"""
