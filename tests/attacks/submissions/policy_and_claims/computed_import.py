"""Imports a module by a name made of character codes, and gets the forbidden function from it."""
# flag: imports something by a computed name


def centre(x):
    module = __import__("".join(map(chr, (110, 117, 109, 112, 121))))
    return x - getattr(module, bytes((109, 101, 97, 110)).decode())(x, axis=0)
