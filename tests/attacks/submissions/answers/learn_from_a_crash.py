"""Crashes on a question and looks, when it is asked it again, for what it wrote down the first time."""

# loses: layer.forward, layer.backward, layer.grads
import os

PLACES = [f"{folder}/attacked-notes" for folder in (".", "/scratch/tmp", "/tmp", "/dev/shm")]
FORWARD = Layer.forward
LEFT = []

for place in PLACES:
    try:
        LEFT.append(open(place).read())
        os.unlink(place)
    except OSError:
        continue


def forward(self, x):
    if LEFT:
        reached(LEFT)
    return FORWARD(self, x)


def backward(self, dy, cache):
    for place in PLACES:
        try:
            open(place, "w").write(f"dy was {dy.tolist()}")
        except OSError:
            continue
    os._exit(0)


Layer.forward, Layer.backward = forward, backward
