"""Answers that it was loaded, and the first question, while it is being imported."""
# status: rejected
# loses: all
import os
import struct

import msgpack


def send(body):
    os.write(3, struct.pack("<Q", len(body)) + body)


send(msgpack.packb(None))
send(msgpack.packb([[], None, [], [], False, None]))
