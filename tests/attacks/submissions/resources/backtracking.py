"""Has a regular expression backtrack for years."""
# loses: total.value
import re


def total(x):
    return re.fullmatch(r"(a|a|aa)+", "a" * 60 + "b")
