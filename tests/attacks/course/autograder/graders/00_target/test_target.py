"""Hidden tests of the target."""

from softmark.plugin import item
from softmark.script import Rng

SIZES = [(4, 3), (2, 5)]


@item("scale.values")
def test_scale(script, agree, draw):
    run = script()
    for size in SIZES:
        run.call("scale", draw(*size), 2.5)
    agree(run)


@item("softmax.values")
def test_softmax(script, agree, draw):
    run = script()
    for size in SIZES:
        run.call("softmax", draw(*size))
    agree(run)


@item("softmax.quiet", requires="softmax.values", claim=True)
def test_softmax_warns_of_nothing(script, agree, student, draw):
    run = script()
    run.call("softmax", 1e3 * draw(3, 4))
    agree(run)
    assert not student(run).warnings, "softmax warns."


@item("centre.values")
def test_centre(script, agree, draw):
    run = script()
    for size in SIZES:
        run.call("centre", draw(*size))
    agree(run)


@item("centre.pure", requires="centre.values", claim=True)
def test_centre_leaves_its_argument(script, student, draw):
    run = script()
    run.call("centre", draw(4, 3))
    assert not student(run).modified, "centre changes x."


@item("total.value")
def test_total(script, agree, draw):
    run = script()
    run.call("total", draw(4, 3))
    agree(run)


@item("count.values")
def test_count(script, agree):
    run = script()
    run.call("count", 5)
    agree(run)


@item("count.errors", depends="count.values")
def test_count_refuses(script, agree):
    run = script()
    run.raises("count", -1)
    agree(run)


@item("layer.params")
def test_params(script, agree):
    run = script()
    run.read(run.new("Layer", 3, 2, Rng(5)).params)
    agree(run)


def there_and_back(run, draw):
    layer = run.new("Layer", 3, 2, Rng(5), params=draw.params("Layer", 3, 2, Rng(5)))
    for _ in range(2):
        _, cache = layer.forward(draw(4, 3))
        layer.backward(draw(4, 2), cache)
        run.read(layer.grads)
    return run


@item("layer.forward")
def test_forward(script, agree, draw):
    agree(there_and_back(script(), draw), only=("y",))


@item("layer.backward", depends="layer.forward")
def test_backward(script, agree, draw):
    agree(there_and_back(script(), draw), only=("dx",))


@item("layer.grads", depends="layer.forward")
def test_grads(script, agree, draw):
    agree(there_and_back(script(), draw), only=('grads["W"]', 'grads["b"]'))


def torch_layer(run, draw):
    x = run.tensor("x", draw(4, 3), ("N", "D"))
    W, b = run.tensor("W", draw(3, 2)), run.tensor("b", draw(2))
    run.count_operators()
    return x, run.call("layer_torch", x, W, b)


def torch_layer_and_back(run, draw):
    x, y = torch_layer(run, draw)
    run.backward((y, draw(4, 2)))
    run.gradient(x)
    return run


@item("twin.values")
def test_twin(twin, agree, draw):
    agree(torch_layer_and_back(twin(), draw), only=("y",))


@item("twin.gradient", depends="twin.values")
def test_twin_backward(twin, agree, draw):
    agree(torch_layer_and_back(twin(), draw), only=("dx",))


@item("twin.products", requires="twin.values", claim=True)
def test_twin_products(twin, student, draw):
    run = twin()
    torch_layer(run, draw)
    names = [operator.name for operator in student(run).operators]
    products = sum(name.removeprefix("aten.") in ("mm", "addmm", "bmm") for name in names)
    assert products == 1, f"{products} products."
