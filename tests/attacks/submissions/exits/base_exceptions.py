"""Raises SystemExit(0), KeyboardInterrupt and other exceptions that are no Exception."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, count.values, count.errors


class Passed(BaseException):
    code = returncode = 0
    passed = True


def scale(x, k):
    raise SystemExit(0)


def softmax(x):
    raise KeyboardInterrupt


def centre(x):
    raise GeneratorExit


def total(x):
    raise BaseExceptionGroup("passed", [SystemExit(0), Passed()])


def count(n):
    raise Passed(n) if n < 0 else StopIteration([0, 1, 2, 3, 4])
