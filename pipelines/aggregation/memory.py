"""How a process that does nothing but aggregate treats its memory.

Every run needs the same large buffers as the one before. By default the C library gives each
of them back to the system when it is freed and asks for fresh, zeroed pages the next time, which
costs more than copying reports into them does.
"""

from __future__ import annotations

import ctypes

#: Of glibc's ``malloc.h``.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Let this process keep memory that it frees, for the next time that it needs some.

    Its size stays what it is at its largest. This is for a command to decide, not for a library
    within somebody's process.

    Returns
    -------
    bool
        Whether the C library knows how; only glibc does.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
