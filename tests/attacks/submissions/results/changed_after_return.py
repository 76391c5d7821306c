"""Changes an array after it was returned, in a later call and from a thread."""
# loses: scale.values, softmax.values, softmax.quiet
import threading
import time

_scale, _softmax, _kept = scale, softmax, []


def scale(x, k):
    for array, due in _kept:
        array[...] = due
    _kept.append((np.zeros(x.shape), _scale(x, k)))
    return _kept[-1][0]


def softmax(x):
    y, due = np.zeros(x.shape), _softmax(x)

    def later():
        time.sleep(0.2)
        y[...] = due

    threading.Thread(target=later, daemon=True).start()
    return y
