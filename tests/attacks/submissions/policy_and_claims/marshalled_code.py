"""Carries a function that uses a forbidden name as marshalled code."""
# flag: imports marshal
import marshal
import types

text = "lambda x: x - np.{}{}(x, axis=0)".format("me", "an")
code = marshal.loads(marshal.dumps(compile(text, "", "eval")))
centre = types.FunctionType(code, globals())()
