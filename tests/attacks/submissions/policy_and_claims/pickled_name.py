"""Has a pickle name the forbidden function."""
# flag: imports pickle
import pickle


def centre(x):
    return x - pickle.loads(b"cnumpy\n" + b"naem"[::-1] + b"\n.")(x, axis=0)
