"""Raises the engine's own exceptions, and ones that only bear their names."""
# loses: scale.values, softmax.values, softmax.quiet, centre.values, centre.pure, total.value, count.values, count.errors
import softmark.isolation.arrays
import softmark.isolation.standins
import softmark.isolation.wire
import softmark.script


def named(name, message="passed"):
    return type(name, (BaseException,), {"msg": message, "failure": None})(message)


def scale(x, k):
    return softmark.script.Unfit("an array of dtype float64 with 2 dimensions")


def softmax(x):
    raise softmark.isolation.wire.Closed if x.max() > 100 else named("NotGraded")


def centre(x):
    raise named("GraderFault" if len(x) == 4 else "ZygoteFailed")


def total(x):
    raise softmark.isolation.arrays.NotDefined("[/red][link=http://127.0.0.1]passed[/link]")


def count(n):
    raise softmark.isolation.standins.Forbidden if n < 0 else named("NotImplementedError")
