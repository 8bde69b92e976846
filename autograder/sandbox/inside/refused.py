"""refused: calls of the kernel that a sandbox may not make, since no namespace and no limit holds what they give.

Keyrings: the kernel keeps keys for a user longer than any sandbox lives, and the next sandbox with the same user could
read them. Memory without a process: what memfd_create, memfd_secret, shmget, msgget give, and anonymous memory that is
shared, stays when it is not mapped, and remote.py, which looks at processes, would not see it. New namespaces and
mounts: a file system in memory has no limit but its own. Sockets to the machine that this one runs in, which no
namespace of networks holds. Called by worker.lock_down.
"""
import ctypes
import errno
import os
import struct

# /usr/include/linux: audit.h's name of the machine; and in its asm/unistd.h
#   add_key, request_key, keyctl; memfd_create, memfd_secret, shmget, msgget; unshare, setns, mount; mmap; socket.
MACHINES = {"x86_64": (0xC000003E, (248, 249, 250, 319, 447, 29, 68, 272, 308, 165), 9, 41),
            "aarch64": (0xC00000B7, (217, 218, 219, 279, 447, 194, 186, 97, 268, 40), 222, 198)}
MOUNTS = range(428, 434)  # open_tree, move_mount, fsopen, fsconfig, fsmount, fspick: the same on both
LOAD, EQUAL, AT_LEAST, HAS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
SHARED, ANONYMOUS = 0x01, 0x20  # linux/mman.h
FAMILIES = 1, 2, 10, 16  # of sockets: unix, inet, inet6, netlink; a namespace holds these
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM  # linux/seccomp.h
X32 = 0x40000000  # a second numbering of the same calls, on x86_64
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2  # linux/prctl.h


def refuse() -> None:
    """From here on, this process and all that it starts are refused these. Raises OSError if that cannot be had."""
    machine, calls, mmap, socket = MACHINES[os.uname().machine]
    # What to do, with which number, and where to go if so and if not: past some steps, to ALLOW or to REFUSE. Loaded
    # are the machine, the call's number, and then the fourth argument of mmap, or the first of socket.
    steps = [(LOAD, 4, 0, 0), (EQUAL, machine, 0, REFUSE), (LOAD, 0, 0, 0), (AT_LEAST, X32, REFUSE, 0),
             *((EQUAL, number, REFUSE, 0) for number in (*calls, *MOUNTS)),
             (EQUAL, mmap, 0, 3), (LOAD, 40, 0, 0), (HAS, ANONYMOUS, 0, ALLOW), (HAS, SHARED, REFUSE, ALLOW),
             (EQUAL, socket, 0, ALLOW), (LOAD, 16, 0, 0), *((EQUAL, f, ALLOW, 0) for f in FAMILIES),
             (RETURN, REFUSE, 0, 0)]
    end = len(steps)
    program = [(what, *({ALLOW: end - i - 1, REFUSE: end - i}.get(to, to) for to in ways), number)
               for i, (what, number, *ways) in enumerate(steps)]
    program += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *instruction) for instruction in program))
    filtered = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, first, second in ((NO_NEW_PRIVILEGES, 1, None), (SECCOMP, FILTER, filtered)):
        if libc.prctl(option, ctypes.c_ulong(first), second, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), "seccomp cannot refuse calls of the kernel")
