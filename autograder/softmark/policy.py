"""What a submission names: forbidden names, and things a person should look at.

This is a static scan: it reads the source and follows imports, assignments and literal strings. It
helps people, to see early and in plain words what a submission uses. It is not a barrier, and a
determined author can hide any name from it. The barrier is the worker, in which a submission finds
nothing worth reaching.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate

from softmark.course import Policy, Topic


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WATCHED_MODULES = _words(
    """
    _ctypes _io _posixsubprocess _thread asyncio atexit bdb builtins cffi code codecs concurrent
    ctypes dill dis doctest faulthandler fcntl fileinput ftplib gc glob http imp importlib inspect io
    joblib linecache marshal mmap multiprocessing nt os pathlib pdb pickle pkgutil platform posix
    psutil pty pydoc pytest requests resource runpy select selectors shelve shutil signal site socket
    softmark sqlite3 subprocess sys sysconfig tempfile threading traceback tracemalloc urllib
    weakref zipfile zipimport
    """
)
_WATCHED_NAMES = _words(
    """
    builtins.__import__ builtins.breakpoint builtins.compile builtins.eval builtins.exec
    builtins.exit builtins.globals builtins.input builtins.locals builtins.open builtins.quit
    builtins.vars
    operator.attrgetter operator.methodcaller typing.ForwardRef typing.get_type_hints
    numpy.core numpy.ctypeslib numpy.f2py numpy.fromfile numpy.genfromtxt numpy.load numpy.loadtxt
    numpy.matlib numpy.memmap numpy.save numpy.savetxt numpy.savez numpy.savez_compressed
    """
) | frozenset(
    f"torch.{name}"
    for name in _words(
        """
        compile export fx hub jit library load multiprocessing ops overrides save
        utils.cpp_extension
        """
    )
)
_WATCHED_ATTRIBUTES = _words(
    """
    __bases__ __builtins__ __closure__ __code__ __getattribute__ __globals__ __loader__ __mro__
    __spec__ __subclasses__ __traceback__ __wrapped__ ag_frame cr_frame f_back f_builtins f_globals
    f_locals gi_frame tb_frame tofile
    """
)
# What they keep for themselves, numpy._core, also holds what they offer.
_LIBRARIES = ("numpy", "torch")
# What these are given is told where they look for a name that is computed.
_LOOKING_INTO = _words("builtins.getattr builtins.hasattr builtins.vars")
# Handed on as a value, a module's functions are out of the scan's sight.
_MODULES = _words("numpy torch torch.nn torch.nn.functional torch.nn.modules")
# Modules that others import for themselves, so that typing.sys is sys.
_FOUND_IN_OTHERS = frozenset(["builtins", "ctypes", "gc", "importlib", "inspect", "os", "sys"])
# Names multiply and grow where they are made from each other; past this they tell nobody anything.
_ALONE = "this file is run by itself; copy what it needs into it"
_UNSCANNED = "it could not be looked through; hand in your code alone"
_MOST_FLAGS = 30
_MOST_SOURCE = 2**18  # of a longer text the tree takes hundreds of megabytes
_MOST_MEANINGS = 16
_MOST_PARTS = 16


@dataclass(frozen=True)
class Violation:
    """A forbidden name, the file and line that use it, and the reason shown to the student."""

    name: str
    file: str
    line: int
    reason: str


def scan(files: Mapping[str, str], policy: Policy) -> list[Violation]:
    """Where sources (file name -> text) use a forbidden name or anything inside it.

    A file that does not parse has no violations: running it gives the better message. One that cannot
    be looked through is itself a violation.
    """
    closed = [file for file, source in files.items() if policy.forbid and _mentions(source) is None]
    found = {Violation("text that is too long or too deep", file, 1, _UNSCANNED) for file in closed}
    found |= {
        Violation(name, file, mention.line, reason)
        for file, source in files.items()
        for mention in _mentions(source) or ()
        if mention.how in ("import", "use")
        for name, reason in policy.forbid.items()
        if _within(mention.name, name) or _within(mention.name, f"builtins.{name}")
    }
    return sorted(found, key=lambda violation: (violation.file, violation.line, violation.name))


def scan_topic(files: Mapping[str, str], topic: Topic) -> list[Violation]:
    """The same for all that was handed in: the twin by its own rules, the rest by the policy.

    The twin is run without the topic's other files and may not use them.
    """
    twin = topic.twin.file if topic.twin else ""
    found = scan({name: text for name, text in _python(files) if name != twin}, topic.policy)
    if topic.twin and twin in files:
        others = {file.removesuffix(".py"): _ALONE for file in topic.files if file != twin}
        found += scan({twin: files[twin]}, Policy(forbid={**topic.twin.forbid, **others}))
    return found


def watch(files: Mapping[str, str]) -> list[str]:
    """Short flags for a person, such as "lstm.py:3 imports os": each thing once a file."""
    flags: list[str] = []
    for file, source in _python(files):
        mentions = _mentions(source)
        if mentions is None:
            flags.append(f"{file} is too large or nested too deeply to be scanned")
            continue
        seen: set[str] = set()
        computed: set[int] = set()
        for mention in sorted(mentions, key=lambda mention: mention.line):
            if mention.how == "computed":
                if mention.line in computed:
                    continue
                computed.add(mention.line)
            for text in _remarks(mention):
                if text not in seen:
                    seen.add(text)
                    flags.append(f"{file}:{mention.line} {text[:100]}")
    more = len(flags) - _MOST_FLAGS
    return flags if more <= 0 else [*flags[:_MOST_FLAGS], f"and {more} more flags"]


def _python(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((name, source) for name, source in files.items() if name.endswith(".py"))


@dataclass(frozen=True)
class _Mention:
    """A dotted name in the source: imported, used, or as an attribute written without its owner.

    Or what something is looked up in by a name that is computed: "" for the modules there are.
    """

    name: str
    line: int
    how: str  # "import", "use", "value", "attribute" or "computed"


def _remarks(mention: _Mention) -> Iterator[str]:
    if mention.how == "attribute":
        if mention.name in _WATCHED_ATTRIBUTES:
            yield f"reaches for {mention.name}"
        return
    if mention.how == "computed":
        if mention.name:
            yield f"looks something up in {mention.name} by a computed name"
        else:
            yield "imports something by a computed name"
        return
    if mention.how == "value":
        yield f"uses {mention.name} as a value"
        return
    first, *rest = mention.name.split(".")
    private = [part.startswith("_") and not part.endswith("__") for part in rest]
    if first in _LIBRARIES and any(private):
        yield "uses " + ".".join([first, *rest[: private.index(True) + 1]])
    if mention.how == "import" and first in _WATCHED_MODULES:
        yield f"imports {first}"
    elif first not in _WATCHED_MODULES and rest and rest[-1] in _FOUND_IN_OTHERS:
        yield f"uses {mention.name}"
    for name in accumulate([first, *rest], "{}.{}".format):
        if name in _WATCHED_NAMES:
            plain = name.removeprefix("builtins.")
            yield f"uses {plain}()" if plain != name else f"uses {name}"


def _within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


@lru_cache(maxsize=16)  # scan and watch look at the same sources
def _mentions(source: str) -> list[_Mention] | None:
    """Every mention in a source; none if it does not parse, None if it is too large or too deep."""
    if len(source) > _MOST_SOURCE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        return None
    try:
        reader = _Reader()
        reader.visit(tree)
        return list(reader.mentions())
    except (RecursionError, _Unscannable):
        return None


class _Unscannable(Exception):
    """A source of which the scan cannot tell what its names mean."""


@dataclass(eq=False)
class _Scope:
    """What names stand for in a module, class or function.

    A meaning is a dotted name, an expression to be resolved, or None for the author's own. Meanings
    add up: the scan does not know which assignment came last.
    """

    parent: _Scope | None = None
    is_class: bool = False
    meanings: dict[str, list[str | ast.expr | None]] = field(default_factory=dict)
    starred: set[str] = field(default_factory=set)
    known: dict[str, frozenset[str]] = field(default_factory=dict)
    resolved: dict[ast.expr, frozenset[str]] = field(default_factory=dict)

    def bind(self, name: str, meaning: str | ast.expr | None) -> None:
        self.meanings.setdefault(name, []).append(meaning)

    def lookup(self, name: str) -> frozenset[str]:
        """The dotted names that ``name`` may stand for when it is used here."""
        if name not in self.known:
            # What a name made from itself, as in np = np.linalg, is made from.
            direct = (m for m in self.meanings.get(name, ()) if isinstance(m, str))
            self.known[name] = _few(direct)
            self.known[name] = _few(self._lookup(name))
        return self.known[name]

    def _lookup(self, name: str) -> Iterator[str]:
        for meaning in self.meanings.get(name, ()):
            if isinstance(meaning, str):
                yield meaning
            elif meaning is not None:
                yield from self.resolve(meaning)
        if self.meanings.get(name):
            return
        for module in self.starred:
            yield f"{module}.{name}"
        outer = self.parent
        while outer and outer.is_class:  # a method does not see its class's names
            outer = outer.parent
        if outer:
            yield from outer.lookup(name)
        elif name == "__builtins__":
            yield "builtins"
        elif hasattr(builtins, name):
            yield f"builtins.{name}"

    def means_only(self, node: ast.expr, names: frozenset[str]) -> bool:
        """Whether an expression stands for one of ``names`` and can be nothing else."""
        given = self.meanings.get(node.id, ()) if isinstance(node, ast.Name) else ()
        once = sum(meaning is not None for meaning in given) <= 1
        return once and bool(self.resolve(node)) and self.resolve(node) <= names

    def resolve(self, node: ast.expr) -> frozenset[str]:
        """The dotted names that an expression may stand for; none if it is the author's own."""
        if isinstance(node, ast.Name):
            return self.lookup(node.id)
        if node not in self.resolved:  # chains share their beginnings
            self.resolved[node] = self._resolve(node)
        return self.resolved[node]

    def _resolve(self, node: ast.expr) -> frozenset[str]:
        if isinstance(node, ast.NamedExpr):
            return self.resolve(node.value)
        if isinstance(node, ast.IfExp):
            return _few(self.resolve(node.body) | self.resolve(node.orelse))
        if isinstance(node, ast.Attribute):
            return frozenset(_members(self.resolve(node.value), node.attr))
        if isinstance(node, ast.Call):
            return _few(self._called(node))
        if isinstance(node, ast.Subscript):
            return _few(self._looked_up(self.resolve(node.value), node.slice))
        return frozenset()

    def _looked_up(self, dictionaries: Iterable[str], key: ast.expr) -> Iterator[str]:
        """What is found in sys.modules or the dictionary of a module."""
        name = _literal(key)
        for dictionary in dictionaries if name else ():
            if dictionary == "sys.modules":
                yield str(name)
            elif dictionary.endswith(".__dict__"):
                yield from _members([dictionary.removesuffix(".__dict__")], str(name))

    def _called(self, node: ast.Call) -> Iterator[str]:
        """Of the calls that find a thing by its name, what they find."""
        functions = self.resolve(node.func)
        if "builtins.getattr" in functions and len(node.args) > 1:
            attribute = _literal(node.args[1])
            if attribute:
                yield from _members(self.resolve(node.args[0]), attribute)
        if "builtins.vars" in functions and node.args:
            yield from _members(self.resolve(node.args[0]), "__dict__")
        if node.args:
            owners = [f.removesuffix(".get") for f in functions if f.endswith(".__dict__.get")]
            yield from self._looked_up(owners, node.args[0])
        for function in functions.intersection(["importlib.import_module", "builtins.__import__"]):
            module = _module_asked(node)
            if module:
                yield module
                if function == "builtins.__import__":
                    yield module.partition(".")[0]


class _Reader(ast.NodeVisitor):
    """Notes the bindings of every scope, and the expressions to resolve once all are known."""

    def __init__(self) -> None:
        self._module = self._scope = _Scope()
        self._imports: list[_Mention] = []
        self._uses: list[tuple[_Scope, ast.Name | ast.Attribute | ast.Call | ast.Subscript]] = []

        # whose meaning is known where it goes: np in np.exp, and in xp = np
        self._followed: set[ast.expr] = set()

    def mentions(self) -> Iterator[_Mention]:
        yield from self._imports
        for scope, node in self._uses:
            names = scope.resolve(node)
            yield from (_Mention(name, node.lineno, "use") for name in names)
            if isinstance(node, ast.Call) and scope.means_only(node.func, _LOOKING_INTO):
                self._followed.update(node.args[:1])
            if node not in self._followed:
                handed_on = names & _MODULES
                yield from (_Mention(name, node.lineno, "value") for name in handed_on)
            if isinstance(node, ast.Attribute):
                yield _Mention(node.attr, node.lineno, "attribute")
            elif isinstance(node, ast.Name):
                yield _Mention(node.id, node.lineno, "attribute")
            elif isinstance(node, ast.Call):
                yield from self._of_call(scope, node)
            elif _literal(node.slice) is None:
                yield from _computed(scope.resolve(node.value), node.lineno, dictionary=True)

    def _of_call(self, scope: _Scope, node: ast.Call) -> Iterator[_Mention]:
        functions = scope.resolve(node.func)
        module = _module_asked(node)
        if functions & {"importlib.import_module", "builtins.__import__"}:
            how = "import" if module else "computed"
            yield _Mention(module or "", node.lineno, how)
        if "builtins.getattr" in functions and len(node.args) > 1:
            attribute = _literal(node.args[1])
            if attribute is None:
                yield from _computed(scope.resolve(node.args[0]), node.lineno)
            else:
                yield _Mention(attribute, node.lineno, "attribute")
        if node.args and _literal(node.args[0]) is None:
            owners = [f.removesuffix(".get") for f in functions if f.endswith(".__dict__.get")]
            yield from _computed(owners, node.lineno, dictionary=True)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._imports.append(_Mention(alias.name, node.lineno, "import"))
            top = alias.name.partition(".")[0]
            self._scope.bind(alias.asname or top, alias.name if alias.asname else top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if node.level or not node.module:  # from the submission's own files
                self._scope.bind(alias.asname or alias.name, None)
            elif alias.name == "*":
                self._imports.append(_Mention(node.module, node.lineno, "import"))
                self._scope.starred.add(node.module)
                if len(self._scope.starred) > _MOST_MEANINGS:
                    raise _Unscannable
            else:
                name = _own(f"{node.module}.{alias.name}")
                self._imports.append(_Mention(name, node.lineno, "import"))
                self._scope.bind(alias.asname or alias.name, name)

    def visit_Global(self, node: ast.Global) -> None:
        # Both ways, as the function may be where the name is given its meaning.
        for name in node.names:
            self._scope.meanings[name] = self._module.meanings.setdefault(name, [])

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._assign(node.target, node.value)
        self.generic_visit(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._scope.bind(target.id, value)
            chosen = [value.body, value.orelse] if isinstance(value, ast.IfExp) else []
            self._followed.update([value, *chosen])
        elif (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, ast.Tuple | ast.List)
            and len(target.elts) == len(value.elts)
        ):
            for one, its_value in zip(target.elts, value.elts, strict=True):
                self._assign(one, its_value)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._uses.append((self._scope, node))
        else:  # also for, with, del: the author's own
            self._scope.bind(node.id, None)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._followed.add(node.value)
        self._uses.append((self._scope, node))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if all(isinstance(sign, ast.Is | ast.IsNot) for sign in node.ops):
            self._followed.update([node.left, *node.comparators])  # as in: if torch is not None
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._uses.append((self._scope, node))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._uses.append((self._scope, node))
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self._scope.bind(node.arg, None)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.bind(node.name, None)
        self._all([*node.decorator_list, *_defaults(node.args)])
        self._inside([node.args, *node.body])

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - named by ast, here and below

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._all(_defaults(node.args))
        self._inside([node.args, node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.bind(node.name, None)
        self._all([*node.decorator_list, *node.bases, *node.keywords])
        self._inside(node.body, is_class=True)

    def visit_ListComp(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        self.visit(node.generators[0].iter)
        self._inside(ast.iter_child_nodes(node))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def _all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _inside(self, nodes: Iterable[ast.AST], is_class: bool = False) -> None:
        outer, self._scope = self._scope, _Scope(self._scope, is_class)
        self._all(nodes)
        self._scope = outer


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


def _literal(node: ast.expr) -> str | None:
    """The text that an expression of literals makes, such as "a" + "b"; None if it is no such one."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined("", [node.left, node.right])
    if isinstance(node, ast.JoinedStr):
        return _joined("", node.values)
    if isinstance(node, ast.FormattedValue) and node.format_spec is None and node.conversion == -1:
        return _literal(node.value)
    match node:
        case ast.Call(ast.Attribute(text, "join"), [ast.List(parts) | ast.Tuple(parts)], []):
            between = _literal(text)
            return None if between is None else _joined(between, parts)
    return None


def _joined(between: str, parts: Iterable[ast.expr]) -> str | None:
    texts = [_literal(part) for part in parts]
    known = [text for text in texts if text is not None]
    return between.join(known) if len(known) == len(texts) else None


def _computed(names: Iterable[str], line: int, dictionary: bool = False) -> Iterator[_Mention]:
    """A look-up in these by a computed name; the attributes of built-in things tell nobody anything."""
    for name in sorted(names):
        owner = name.removesuffix(".__dict__")
        if (owner != name or name == "sys.modules" or not dictionary) and (
            not owner.startswith("builtins.")
        ):
            yield _Mention(owner, line, "computed")


def _module_asked(node: ast.Call) -> str | None:
    """The module in import_module("torch.nn") or import_module(".nn", "torch"), if literal."""
    keywords = {word.arg: word.value for word in node.keywords}
    name, package = [
        _literal(argument) if argument else None
        for argument in (
            node.args[0] if node.args else keywords.get("name"),
            node.args[1] if len(node.args) > 1 else keywords.get("package"),
        )
    ]
    if not name or not name.startswith("."):
        return name
    try:
        return importlib.util.resolve_name(name, package) if package else None
    except ImportError:
        return None


def _members(owners: Iterable[str], attribute: str) -> Iterator[str]:
    return (_own(f"{owner}.{attribute}") for owner in owners if owner.count(".") < _MOST_PARTS)


def _own(name: str) -> str:
    """The same under the library's own name where it is found in a part that imports it:
    numpy.ma.core.np.mean is numpy.mean."""
    first, *rest = name.split(".")
    if first in _LIBRARIES:
        for place in range(len(rest) - 1, -1, -1):
            if rest[place] in ("np", *_LIBRARIES):
                return ".".join([rest[place].replace("np", "numpy", 1), *rest[place + 1 :]])
    return name


def _few(names: Iterable[str]) -> frozenset[str]:
    return frozenset(sorted(set(names))[:_MOST_MEANINGS])
