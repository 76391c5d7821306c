"""Runs source text that names a forbidden function and that was encoded."""
# flag: uses exec()
import base64

exec(base64.b64decode("Y2VudHJlID0gbGFtYmRhIHg6IHggLSBucC5tZWFuKHgsIGF4aXM9MCk="))
