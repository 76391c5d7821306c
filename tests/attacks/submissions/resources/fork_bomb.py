"""Makes processes that make processes, by every call that makes one."""
# loses: scale.values
import ctypes
import os
import struct
import time

_CLONE, _FORK, _VFORK, _CLONE3, _SIGCHLD = 56, 57, 58, 435, 17


def scale(x, k):
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number, *arguments):
        child = libc.syscall(number, *arguments)
        if child < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return child

    def again(child):
        if child == 0:
            time.sleep(1)
            os._exit(0)
        return child

    clone3 = struct.pack("11Q", *[0] * 4, _SIGCHLD, *[0] * 6)
    ways = [
        lambda: again(os.fork()),
        lambda: again(os.forkpty()[0]),
        lambda: again(__import__("pty").fork()[0]),
        lambda: again(libc.fork()) + 1 or 1 / 0,
        lambda: again(call(_FORK)),
        lambda: again(call(_VFORK)),
        lambda: again(call(_CLONE, _SIGCHLD, 0, 0, 0, 0)),
        lambda: again(call(_CLONE, 0x0100 | _SIGCHLD, 0, 0, 0, 0)),
        lambda: again(call(_CLONE3, clone3, len(clone3))),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: __import__("subprocess").Popen(["/bin/true"]),
        lambda: (
            __import__("multiprocessing")
            .get_context("fork")
            .Process(target=time.sleep, args=(1,))
            .start()
        ),
        lambda: os.system("true & true") and 1 / 0,
    ]
    made = []
    for number, way in enumerate(ways):
        try:
            for _ in range(20):
                way()
                made.append(number)
        except OSError as error:
            last = error
        except (ZeroDivisionError, AssertionError, ImportError):
            pass
    if made:
        reached(f"{len(made)} processes by {sorted(set(made))}")
    raise last
