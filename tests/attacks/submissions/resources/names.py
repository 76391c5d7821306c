"""Makes 10**4 functions whose names are all nearly that of the one it does not have."""
# loses: count.values, count.errors
exec("".join(f"def count{number:06}(n): pass\n" for number in range(10**4)))
del count


def __getattr__(name):
    raise AttributeError(name * 10**6)
