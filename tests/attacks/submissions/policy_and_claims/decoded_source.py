"""Runs source text that names a forbidden function and that was encoded."""
# flag: uses exec()
import codecs

exec(codecs.decode("qrs prager(k): erghea k - ac.zrna(k, nkvf=0)", "rot13"))
