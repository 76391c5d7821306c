"""Has a shell, a downloader or another Python make the call."""

# loses: scale.values
import ctypes
import os
import subprocess
import sys

CALL = "exec 3<>/dev/tcp/127.0.0.1/@port@"
PYTHON = "import socket; socket.create_connection(('127.0.0.1', @port@), 1)"


def spawn(program, *arguments):
    pid = os.posix_spawn(program, [program, *arguments], {})
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def scale(x, k):
    last = None
    for way in (
        lambda: subprocess.run(["/bin/bash", "-c", CALL], check=True, timeout=1).returncode,
        lambda: subprocess.run([sys.executable, "-Ic", PYTHON], check=True).returncode,
        lambda: subprocess.run(["curl", "-s", "http://127.0.0.1:@port@"], timeout=0.1),
        lambda: spawn("/bin/bash", "-c", CALL),
        lambda: spawn(sys.executable, "-Ic", PYTHON),
        lambda: os.system(f"bash -c '{CALL}'") and (_ for _ in ()).throw(OSError(1, "no shell")),
        lambda: ctypes.CDLL(None).system(b"true") and (_ for _ in ()).throw(OSError(1, "no shell")),
        lambda: os.execv("/bin/bash", ["bash", "-c", CALL]),
        lambda: open("/dev/tcp/127.0.0.1/@port@"),
    ):
        try:
            code = way()
        except (OSError, subprocess.SubprocessError) as error:
            last = error
        else:
            if not code:
                reached("a program of its own")
    raise last
