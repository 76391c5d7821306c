"""Never comes to an end of its import, in one call into C that keeps the interpreter's lock."""
# status: import_error
# loses: all
import itertools

sum(itertools.repeat(0))
