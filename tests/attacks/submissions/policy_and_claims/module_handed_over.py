"""Hands the module on under names whose meaning the scan does not follow, and uses a forbidden function of it."""
# flag: uses numpy as a value


class Holder:
    module = np


def given(x, module=np):
    return module.mean(x, axis=0)


def looped(x):
    for module in [np]:
        return module.mean(x, axis=0)


def centre(x):
    means = [
        given(x),
        looped(x),
        Holder.module.mean(x, axis=0),
        (np or None).mean(x, axis=0),
        (lambda: np)().mean(x, axis=0),
        [np][0].mean(x, axis=0),
        {"numpy": np}["numpy"].mean(x, axis=0),
        next(module.mean(x, axis=0) for module in (np,)),
    ]
    return x - sum(means) / len(means)
