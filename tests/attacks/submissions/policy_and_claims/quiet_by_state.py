"""Overflows, and has NumPy and Python keep quiet about it."""
# claim: softmax.quiet
import warnings


def softmax(x):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        e = np.exp(x)
        careful = np.exp(x - x.max(axis=-1, keepdims=True))
        return np.where(np.isfinite(e), careful, careful) / careful.sum(axis=-1, keepdims=True)
