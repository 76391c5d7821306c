"""Takes memory in small pieces, and goes on when there is no more."""
# loses: scale.values


def scale(x, k):
    pieces, size, step = [], 0, 1 << 20
    while step > 1 << 10:
        try:
            while size < 1 << 30:
                pieces.append(b"x" * step)
                size += step
            reached("a gigabyte")
        except MemoryError:
            step //= 4
    pieces = None
    raise MemoryError(f"after {size >> 20} MB")
