"""Writes into its results, its arguments and its worker's arrays from a thread, once all is sent."""
import gc
import os
import threading


def spoil(function):
    def spoiling(*arguments):
        result = function(*arguments)
        seen.extend(a for a in (*arguments, result) if type(a) is np.ndarray)
        return result

    return spoiling


def write():
    for array in (*seen, *(a for a in gc.get_objects() if type(a) is np.ndarray)):
        if array.flags.writeable and array.dtype == float:
            array[...] = 0


def read_and_write(*arguments):
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    return read(*arguments)


seen, read = [], os.read
os.read = read_and_write
scale, softmax, centre, total = (spoil(f) for f in (scale, softmax, centre, total))
