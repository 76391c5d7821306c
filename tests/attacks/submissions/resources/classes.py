"""Makes classes and attributes without end, each hung on the next."""
# loses: total.value


def total(x):
    kinds = [object]
    while True:
        kinds.append(type(f"kind{len(kinds)}", (), {"next": kinds[-1], "list": [kinds]}))
        for number in range(100):
            setattr(kinds[-1], f"attribute{number}", number)
