"""Returns a list of 150,000 entries, more than a message may hold."""
# loses: count.values


def count(n):
    if n < 0:
        raise ValueError("n should not be negative")
    return [True] * 150_000
