"""The slips that mutants are made of: for a node of the reference, the nodes that could stand there.

Such as a student makes, in NumPy and in PyTorch: another operator, a bound off by one, the wrong axis,
two arguments or two names exchanged, a statement, a factor or an accumulation forgotten.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Slip = tuple[str, ast.AST, ast.AST]
"""Its kind, a node, and the node that takes its place."""

Function = ast.FunctionDef | ast.AsyncFunctionDef

_OPERATORS: Mapping[type[ast.operator], Sequence[type[ast.operator]]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div, ast.Add],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Div, ast.Mult],
    ast.Mod: [ast.FloorDiv],
    ast.MatMult: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.BitXor: [ast.BitOr],
}
_COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COMPARISONS: Mapping[type[ast.cmpop], Sequence[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.GtE],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.LtE],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_PAIRS = "zeros ones, zeros_like ones_like, maximum minimum, max min, amax amin, argmax argmin, "
_PAIRS += "sum mean, any all, tril triu, floor ceil, sin cos"
_OPPOSITE = {
    name: other
    for pair in _PAIRS.split(", ")
    for name, other in itertools.permutations(pair.split())
}
_BUILTINS = {"max", "min", "any", "all"}
# Their arguments in either order give the same.
_SYMMETRIC = {"maximum", "minimum", "max", "min", "logaddexp", "hypot", "array_equal"}
_SYMMETRIC |= {"swapaxes", "transpose"}
# They make something of a size: that in its place would be a type error, not a slip.
_MAKERS = {"range", "len", "zeros", "ones", "empty", "full", "eye", "arange", "enumerate"}
_DIFFERENTIABLE = {"tanh", "sigmoid", "exp", "softmax", "matmul", "bmm", "einsum", "cat", "stack"}
_DIFFERENTIABLE |= {"where"}


# ---- names -----------------------------------------------------------------------------------------

_SELF = ("self", "cls")
_OTHERS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """A function, by its qualified name, or the module: what its own code binds and reads.

    ``bound`` has the place of each local's first binding, ``keys`` the texts used as subscripts,
    ``attributes`` what is read of ``self``, each in the order of the code.
    """

    def __init__(self, name: str = "", function: Function | None = None) -> None:
        self.name = name
        self.bound: dict[str, tuple[int, int]] = {}
        self.read: set[str] = set()
        self.keys: list[str] = []
        self.attributes: list[str] = []
        self.returns = 0
        if function is None:
            return
        for given in ast.walk(function.args):
            if isinstance(given, ast.arg) and given.arg not in _SELF:
                self.bound[given.arg] = (function.lineno, 0)
        for node in sorted(_own(function.body), key=place):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                self.bound.setdefault(name, place(node))
            case ast.Name(id=name):
                self.read.add(name)
            case ast.Subscript(slice=ast.Constant(value=str(key))) if key not in self.keys:
                self.keys.append(key)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute, ctx=ast.Load()):
                if name in _SELF and attribute not in self.attributes:
                    self.attributes.append(attribute)
            case ast.Return():
                self.returns += 1

    def others(self, name: str, at: tuple[int, int]) -> Iterator[str]:
        """Locals that ``name`` could be mistaken for in a statement at a place: those bound next before
        and after it, and the one spelt most like it."""
        there = [n for n, b in self.bound.items() if n == name or (b < at and n in self.read)]
        if name in there:
            yield from neighbours(name, there)
            there.remove(name)
            yield from difflib.get_close_matches(name, there, n=1, cutoff=0.3)

    def first_binding(self, assignment: ast.stmt) -> bool:
        """Whether without it every name that it assigns to would be unknown where it is read."""
        stores = [n for n in ast.walk(assignment) if isinstance(getattr(n, "ctx", None), ast.Store)]
        targets = [n for n in stores if not isinstance(n, ast.Tuple | ast.List)]
        names = [n for n in targets if isinstance(n, ast.Name)]
        return names == targets and all(self.bound.get(n.id) == place(n) for n in names)


def _own(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes but those whose names are another function's or a comprehension's own."""
    for node in nodes:
        if not isinstance(node, (*_OTHERS, *_COMPREHENSIONS)):
            yield node
            yield from _own(list(ast.iter_child_nodes(node)))


def place(node: ast.AST) -> tuple[int, int]:
    """Line, from 1, and column, from 0; (0, 0) for what has none."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def neighbours(item: str, items: Sequence[str]) -> list[str]:
    """What stands next before and after it."""
    index = items.index(item)
    return [*items[max(0, index - 1) : index], *items[index + 1 : index + 2]]


# ---- slips -----------------------------------------------------------------------------------------


def slips(
    node: ast.AST, parent: ast.AST | None, statement: ast.stmt, scope: Scope, modules: set[str]
) -> Iterator[Slip]:
    """The slips at one node of a statement; ``modules`` are the names of what the file imports."""
    if isinstance(node, ast.stmt):
        yield from _of_statement(node, scope)
        yield from _of_values(node, "torch" in modules)
        return
    tested = isinstance(statement, ast.If | ast.While) and node is statement.test
    if isinstance(node, ast.expr) and tested and not isinstance(node, ast.Compare):
        yield "condition negated", node, ast.UnaryOp(ast.Not(), node)
    yield from _of_operators(node)
    yield from _of_constants(node)
    yield from _of_order(node, parent)
    yield from _of_subscripts(node)
    yield from _of_calls(node, parent, modules)
    yield from _of_names(node, parent, place(statement), scope)


def _of_statement(node: ast.stmt, scope: Scope) -> Iterator[Slip]:
    """Statements left out, and accumulations that are none."""
    dropped = isinstance(node, ast.Raise | ast.Assert | ast.Break | ast.Continue | ast.AugAssign)
    dropped |= isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
    dropped |= isinstance(node, ast.Return) and scope.returns > 1
    dropped |= isinstance(node, ast.Assign | ast.AnnAssign) and not scope.first_binding(node)
    if dropped:
        yield "statement dropped", node, ast.Pass()
    if isinstance(node, ast.AugAssign):
        for other in _OPERATORS.get(type(node.op), ()):
            yield "operator", node, ast.AugAssign(node.target, other(), node.value)
        plain = ast.Assign([node.target], node.value)
        yield "accumulation dropped", node, ast.copy_location(plain, node)


def _of_values(node: ast.stmt, torch: bool) -> Iterator[Slip]:
    """What is assigned or returned: negated, or cut out of PyTorch's graph."""
    value = node.value if isinstance(node, ast.Assign | ast.Return) else None
    for part in value.elts if isinstance(value, ast.Tuple) else [value]:
        match part:
            case ast.BinOp() | ast.Call() | ast.Name() | ast.Attribute() | ast.Subscript():
                yield "sign", part, ast.UnaryOp(ast.USub(), part)
        match part:
            case ast.BinOp() | ast.Call() if torch:
                if isinstance(part, ast.BinOp) or _called(part) in _DIFFERENTIABLE:
                    detach = ast.Attribute(part, "detach", ast.Load())
                    yield "gradient cut", part, ast.Call(detach, [], [])


def _of_operators(node: ast.AST) -> Iterator[Slip]:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            for other in _OPERATORS.get(type(op), ()):
                yield "operator", node, ast.BinOp(left, other(), right)
            if not isinstance(op, _COMMUTATIVE):
                yield "operands swapped", node, ast.BinOp(right, op, left)
            if isinstance(op, _ARITHMETIC):
                yield "operand dropped", node, left
                yield "operand dropped", node, right
        case ast.UnaryOp(operand=operand):
            yield "operator dropped", node, operand
        case ast.Compare(left=left, ops=ops, comparators=right_hand):
            for k, comparison in enumerate(ops):
                for opposite in _COMPARISONS[type(comparison)]:
                    changed = [*ops[:k], opposite(), *ops[k + 1 :]]
                    yield "comparison", node, ast.Compare(left, changed, right_hand)
        case ast.BoolOp(op=connective, values=values):
            either = ast.Or() if isinstance(connective, ast.And) else ast.And()
            yield "operator", node, ast.BoolOp(either, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "branches swapped", node, ast.IfExp(test, orelse, body)


def _of_constants(node: ast.AST) -> Iterator[Slip]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    others: list[Any] = []
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, int):
        others = [value - 1, value + 1] if value else [1]
    elif isinstance(value, float):
        others = [0.0, 2 * value, value + 1.0] if value else [1.0]
    for other in others:
        yield "constant", node, ast.Constant(other)


def _of_order(node: ast.AST, parent: ast.AST | None) -> Iterator[Slip]:
    """Two neighbours exchanged: arguments of a call, entries of a tuple or list, also of targets."""
    match node:
        case ast.Call(func=func, args=args, keywords=keywords) if _called(node) not in _SYMMETRIC:
            for swapped in _swaps(args):
                yield "arguments swapped", node, ast.Call(func, swapped, keywords)
        case ast.Tuple(elts=elts, ctx=ctx) | ast.List(elts=elts, ctx=ctx):
            # of `a, b = c, d` one side is enough
            twice = isinstance(ctx, ast.Store) and isinstance(
                getattr(parent, "value", None), ast.Tuple
            )
            for swapped in () if twice else _swaps(elts):
                yield "order", node, type(node)(swapped, ctx)


def _swaps(nodes: Sequence[ast.expr]) -> Iterator[list[ast.expr]]:
    for k, pair in enumerate(itertools.pairwise(nodes)):
        if not any(isinstance(node, ast.Starred) for node in pair):
            yield [*nodes[:k], *pair[::-1], *nodes[k + 2 :]]


def _of_subscripts(node: ast.AST) -> Iterator[Slip]:
    """Bounds and indices moved by one or left out; None and ``...`` left out."""
    if not isinstance(node, ast.Subscript):
        return
    index = node.slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for k, part in enumerate(parts):
        match part:
            case ast.Slice(lower=lower, upper=upper, step=step):
                yield from _moved(lower)
                yield from _moved(upper)
                if lower is not None:
                    yield "bound dropped", part, ast.Slice(None, upper, step)
                if upper is not None:
                    yield "bound dropped", part, ast.Slice(lower, None, step)
                if step is not None and not isinstance(step, ast.UnaryOp):
                    yield "sign", step, ast.UnaryOp(ast.USub(), step)
            case ast.Constant(value=None | types.EllipsisType()) if len(parts) > 1:
                rest = [*parts[:k], *parts[k + 1 :]]
                fewer = rest[0] if len(rest) == 1 else ast.Tuple(rest, ast.Load())
                yield "index dropped", index, fewer
            case _:
                yield from _moved(part)


def _moved(index: ast.expr | None) -> Iterator[Slip]:
    """By one; where it is a constant that is a slip of its own."""
    if isinstance(index, ast.Name | ast.Attribute | ast.BinOp):
        for op in (ast.Add(), ast.Sub()):
            yield "index", index, ast.BinOp(index, op, ast.Constant(1))


def _of_calls(node: ast.AST, parent: ast.AST | None, modules: set[str]) -> Iterator[Slip]:
    """Keywords left out, the opposite function, and nothing but what it is called on."""
    if not isinstance(node, ast.Call):
        return
    func, args, name = node.func, node.args, _called(node)
    for keyword in node.keywords:
        rest = [other for other in node.keywords if other is not keyword]
        yield "keyword dropped", node, ast.Call(func, args, rest)
    match func:
        case ast.Attribute(value=value, ctx=ctx) if name in _OPPOSITE:
            yield "function", func, ast.Attribute(value, _OPPOSITE[name], ctx)
        case ast.Name(ctx=ctx) if name in _BUILTINS:
            yield "function", func, ast.Name(_OPPOSITE[name], ctx)
    if isinstance(parent, ast.Expr):
        return
    match func:
        case ast.Attribute(value=value) if not _is_module(value, modules):
            if all(isinstance(arg, ast.Constant | ast.UnaryOp) for arg in args):
                yield "call dropped", node, value
        case _ if len(args) == 1 and not isinstance(args[0], ast.Starred) and name not in _MAKERS:
            yield "call dropped", node, args[0]


def _is_module(value: ast.expr, modules: set[str]) -> bool:
    while isinstance(value, ast.Attribute):  # torch.nn.functional
        value = value.value
    return isinstance(value, ast.Name) and value.id in modules


def _called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    match node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _of_names(
    node: ast.AST, parent: ast.AST | None, at: tuple[int, int], scope: Scope
) -> Iterator[Slip]:
    """Another local, another attribute of self, another key; a transpose left out."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if node is not getattr(parent, "func", None):
            for other in scope.others(name, at):
                yield "name", node, ast.Name(other, node.ctx)
        case ast.Attribute(value=value, attr="T" | "mT", ctx=ast.Load()):
            yield "transpose dropped", node, value
        case ast.Attribute(value=ast.Name(id=of) as value, attr=attribute, ctx=ast.Load()):
            if of in _SELF and attribute in scope.attributes:
                for other in neighbours(attribute, scope.attributes):
                    yield "name", node, ast.Attribute(value, other, node.ctx)
        case ast.Subscript(slice=ast.Constant(value=str(key)) as index) if key in scope.keys:
            for other in neighbours(key, scope.keys):
                yield "key", index, ast.Constant(other)
