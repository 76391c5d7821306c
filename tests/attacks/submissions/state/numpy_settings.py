"""Has NumPy raise at every rounding and print nothing, whoever uses it."""

import sys


def refuse(*_, **__):
    raise SystemExit(0)


np.seterr(all="call")
np.seterrcall(refuse)
np.set_printoptions(formatter={"all": refuse}, threshold=sys.maxsize, legacy="1.13")
np.setbufsize(16)


def total(x):
    np.seterr(all="raise", under="call")
    np.set_printoptions(override_repr=refuse)
    return float(x.sum())
