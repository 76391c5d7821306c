"""Compiles sources of megabytes that are nothing but nesting."""
# loses: total.value
import ast


def total(x):
    sources = ["(" * 10**6 + ")" * 10**6, "-" * 10**6 + "1", "a." * 10**6 + "a", "lambda:" * 10**6]
    sources += ["[" * 150 + "]" * 150, "x" + "()" * 10**6, "1" + "+1" * 10**6]
    for source in sources:
        try:
            compile(ast.parse(source), "", "exec")
        except (MemoryError, RecursionError, SyntaxError):
            pass
    return -1.0
