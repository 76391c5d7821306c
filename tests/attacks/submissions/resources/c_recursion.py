"""Recurses in C, which knows no limit, until the stack is used up."""
# loses: total.value


def total(x):
    nested = ()
    for _ in range(10**6):
        nested = (nested,)
    return hash(nested)
