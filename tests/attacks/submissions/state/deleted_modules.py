"""Deletes every module there is and empties those that it can."""
# loses: scale.values
import sys


def scale(x, k):
    import builtins

    for name, module in list(sys.modules.items()):
        if name not in ("builtins", "sys", "target"):
            getattr(module, "__dict__", {}).clear()
    sys.modules.clear()
    vars(builtins).clear()
