"""Replaces its process by another program, which answers in its place."""
# loses: scale.values
import ctypes
import os
import sys

CODE = """
import os
from softmark.isolation import wire
said = [0, "RuntimeError", "REACHED another program", "", ""]
os.write(3, wire.frame(wire.pack([[], said, [], [], False, None])))
"""


def scale(x, k):
    libc = ctypes.CDLL(None, use_errno=True)
    said = OSError("nothing was run")
    for program in (sys.executable, "/usr/bin/python3", "/proc/self/exe", "/bin/sh"):
        arguments = [program, "-Ic", CODE]
        words = (ctypes.c_char_p * 4)(*(a.encode() for a in arguments), None)
        for run in (
            lambda: os.execv(program, arguments),
            lambda: os.execve(os.open(program, os.O_RDONLY), arguments, {}),
            lambda: os.posix_spawn(program, arguments, {}),
            lambda: os.fork() or os.execv(program, arguments),
            lambda: libc.syscall(59, program.encode(), words, None),
            lambda: libc.syscall(322, -100, program.encode(), words, None, 0),  # execveat
            # the loader as a program that maps what it is told to
            lambda: os.execv("/lib64/ld-linux-x86-64.so.2", ["ld", *arguments]),
        ):
            try:
                run()
            except OSError as error:
                said = error
    raise said
