"""refused: calls of the kernel that a sandbox may not make, since no namespace and no limit holds what they give.

Keyrings: the kernel keeps keys for a user longer than any sandbox lives, and the next sandbox with the same user could
read them. Memory without a process: what memfd_create, memfd_secret, shmget, msgget give, and anonymous memory that is
shared, stays when it is not mapped, and remote.py, which looks at processes, would not see it. Called by
worker.lock_down.
"""
import ctypes
import errno
import os
import struct

# /usr/include/linux: audit.h's name of the machine; in its asm/unistd.h add_key, request_key, keyctl, memfd_create,
# memfd_secret, shmget and msgget; and mmap.
MACHINES = {"x86_64": (0xC000003E, (248, 249, 250, 319, 447, 29, 68), 9),
            "aarch64": (0xC00000B7, (217, 218, 219, 279, 447, 194, 186), 222)}
LOAD, EQUAL, AT_LEAST, HAS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
SHARED, ANONYMOUS = 0x01, 0x20  # linux/mman.h
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # linux/seccomp.h
X32 = 0x40000000  # a second numbering of the same calls, on x86_64
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2  # linux/prctl.h


def refuse() -> None:
    """From here on, this process and all that it starts are refused these. Raises OSError if that cannot be had."""
    machine, calls, mmap = MACHINES[os.uname().machine]
    tests = [(AT_LEAST, X32), *((EQUAL, number) for number in calls)]
    # Each instruction: what, how many to skip if so and if not, a number. The last one refuses. Loaded are the machine,
    # the call's number, and the fourth argument of mmap.
    program = [(LOAD, 0, 0, 4), (EQUAL, 0, len(tests) + 6, machine), (LOAD, 0, 0, 0),
               *((test, len(tests) + 4 - i, 0, k) for i, (test, k) in enumerate(tests)),
               (EQUAL, 0, 3, mmap), (LOAD, 0, 0, 40), (HAS, 0, 1, ANONYMOUS), (HAS, 1, 0, SHARED),
               (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    filtered = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, first, second in ((NO_NEW_PRIVILEGES, 1, None), (SECCOMP, FILTER, filtered)):
        if libc.prctl(option, ctypes.c_ulong(first), second, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), "seccomp cannot refuse calls of the kernel")
