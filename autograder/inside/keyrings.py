"""keyrings: the kernel keeps keys for a user, outside of namespaces, and longer than any sandbox lives. None here.

What one submission left there, the next one's sandbox with the same user could read. Called by worker.lock_down.
"""
import ctypes
import errno
import os
import struct

# /usr/include/linux: audit.h's name of the machine; add_key, request_key and keyctl in its asm/unistd.h.
MACHINES = {"x86_64": (0xC000003E, (248, 249, 250)), "aarch64": (0xC00000B7, (217, 218, 219))}
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # linux/seccomp.h
X32 = 0x40000000  # a second numbering of the same calls, on x86_64
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2  # linux/prctl.h


def refuse() -> None:
    """From here on, this process and all that it starts have no keyrings. Raises OSError if that cannot be had."""
    machine, calls = MACHINES[os.uname().machine]
    tests = [(AT_LEAST, X32), *((EQUAL, number) for number in calls)]
    # Each instruction: what, how many to skip if so and if not, a number. The last one refuses.
    program = [(LOAD, 0, 0, 4), (EQUAL, 0, len(tests) + 2, machine), (LOAD, 0, 0, 0),
               *((test, len(tests) - i, 0, k) for i, (test, k) in enumerate(tests)),
               (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    filtered = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, first, second in ((NO_NEW_PRIVILEGES, 1, None), (SECCOMP, FILTER, filtered)):
        if libc.prctl(option, ctypes.c_ulong(first), second, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), "seccomp cannot close the kernel's keyrings")
