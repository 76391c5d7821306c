"""Changes the settings of its interpreter, its environment, its locale and its folder."""

import decimal
import gc
import locale
import os
import sys
import time

os.environ.clear()
os.environ.update(
    PYTHONPATH="@neighbour@", LD_PRELOAD="@home@", PYTHONHASHSEED="1", TZ="Asia/Tokyo"
)
time.tzset()
decimal.getcontext().prec = decimal.DefaultContext.prec = 1
gc.disable()
gc.freeze()
gc.set_threshold(1)
sys.setswitchinterval(1e-9)
sys.setrecursionlimit(120)
sys.set_int_max_str_digits(640)
sys.float_repr_style = "legacy"
sys.path.clear()
for category in (locale.LC_ALL, locale.LC_NUMERIC):
    try:
        locale.setlocale(category, "de_DE.UTF-8")
    except locale.Error:
        locale.setlocale(category, "C")
for folder in ("/", "/proc/self", "/usr"):
    try:
        os.chdir(folder)
    except OSError:
        pass
