"""Has a module's own __getattribute__ and __dict__ find a forbidden function."""
# flag: reaches for __getattribute__


def centre(x):
    one = np.__getattribute__("mean")(x, axis=0)
    two = [f for name, f in np.__dict__.items() if name == "mean"][0](x, axis=0)
    return x - (one + two) / 2
