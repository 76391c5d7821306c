"""Watches the worker by an audit hook, a tracer and its own reader of frames."""

# loses: scale.values
import contextlib
import re
import sys

from softmark.isolation import wire

HEARD = []
READ = wire.unpack_trusted


def note(*what):
    with contextlib.suppress(Exception):
        HEARD.append(repr(what)[:10_000])


def read(data):
    HEARD.append(data.decode("latin-1"))
    return READ(data)


def watch(frame, event, argument):
    note(event, frame.f_code.co_name, frame.f_locals)
    return watch if len(HEARD) < 500 else None


sys.addaudithook(lambda name, args: note(name, args) if len(HEARD) < 500 else None)
sys.settrace(watch)
wire.unpack_trusted = read


def scale(x, k):
    sys.settrace(None)
    for said in HEARD:
        found = re.search(r"canary[0-9a-f]{24}|expected|solution|points|scale\.values", said)
        if found and "the attack" not in said:
            reached(found[0])
    raise LookupError(f"nothing in {len(HEARD)} things heard")
