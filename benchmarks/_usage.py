"""python -m benchmarks._usage COMMAND...: runs it, and prints seconds on the clock and of processor time, in all.

Processes that the command leaves behind, or kills, are counted too: they become children of this process.
"""
import ctypes
import json
import os
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began = time.monotonic()
    done = subprocess.run(sys.argv[1:], stdout=sys.stderr)
    seconds = time.monotonic() - began
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"rc": done.returncode, "seconds": seconds, "cpu": used.ru_utime + used.ru_stime}))
