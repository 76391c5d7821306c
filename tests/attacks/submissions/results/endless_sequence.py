"""Returns a list that says it has five entries and yields them without end."""
# loses: count.values, count.errors


class Endless(list):
    def __len__(self):
        return 5

    def __iter__(self):
        n = 0
        while True:
            yield n
            n += 1


def count(n):
    if n < 0:
        raise ValueError("n should not be negative")
    return Endless()
