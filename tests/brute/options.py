"""What can be set in all that is registered or exported: found from signatures and from the code.

So a new option, a new algorithm, a new loss or domain has values in `cases`, or the test fails.
"""

import ast
import importlib
import inspect
import pkgutil
import textwrap
from dataclasses import fields
from functools import cache
from typing import Any

import protocols
import shuffle_sim
from protocols.erm.risk import Risk
from protocols.problems import domains
from protocols.problems.domains import Domain
from protocols.problems.loss import Loss
from protocols.problems.problem import Problem
from shuffle_sim.privacy.mechanisms import Mechanism
from shuffle_sim.protocol.base import Algorithm
from shuffle_sim.protocol.query import Query
from shuffle_sim.protocol.randomizer import Randomizer
from shuffle_sim.protocol.release import Statistic
from shuffle_sim.registry import names, registered

NAMES = {"given", "own", "unknown"}
"""What functions call a mapping of the options that they look into by name."""
MADE = ("calibrated", "paper")
PACKAGES, AUDITS = ("protocols.", "shuffle_sim."), "shuffle_sim.auditing."


def algorithms() -> dict[str, type]:
    """All that plans releases or rounds, by the name of the class."""
    kinds = [registered(kind, name) for kind in ("algorithm", "protocol") for name in names(kind)]
    for name in {*vars(protocols), *protocols.learning.__all__}:
        kind = getattr(protocols, name)
        if isinstance(kind, type) and (issubclass(kind, Algorithm) or hasattr(kind, "calibrated")):
            kinds.append(kind)
    found = {kind.__name__: kind for kind in kinds if not inspect.isabstract(kind)}
    return {
        name: kind
        for name, kind in sorted(found.items())
        if any(hasattr(kind, made) for made in MADE) or issubclass(kind, Algorithm)
    }


def shipped() -> set[type]:
    """All algorithms, and all that they can ask: every concrete class in every module.

    Audits ask data that they make, so theirs are no part of it; commands define none.
    """
    for package in (protocols, shuffle_sim):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith("shuffle_sim.cli."):
                importlib.import_module(module.name)
    left, found = [Algorithm, Query, Randomizer, Statistic, Mechanism], set[type]()
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        ours = kind.__module__.startswith(PACKAGES) and not kind.__module__.startswith(AUDITS)
        if ours and not inspect.isabstract(kind):
            found.add(kind)
    return found


def losses() -> set[str]:
    """Registered losses, and those that are exported."""
    kinds = [registered("loss", name) for name in names("loss")]
    kinds += [getattr(protocols, name) for name in {*vars(protocols), *protocols.learning.__all__}]
    kinds = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Loss)]
    return {kind.__name__ for kind in kinds if not inspect.isabstract(kind)}


def domain_kinds() -> set[str]:
    """All domains."""
    kinds = [each for each in vars(domains).values() if isinstance(each, type)]
    return {kind.__name__ for kind in kinds if issubclass(kind, Domain) and kind is not Domain}


def options(kind: type) -> set[str]:
    """All names that may be given to a class, however it is made."""
    found = {*getattr(kind, "takes", ()), *getattr(kind, "adapts", ())}
    for name in (*MADE, "__init__"):
        if (function := getattr(kind, name, None)) is not None:
            found |= _parameters(function)
    for each in kind.__mro__:
        if each.__module__.startswith("protocols."):
            found |= _looked_up(each)
    risk = getattr(kind, "kind", None)
    if isinstance(risk, type) and issubclass(risk, Risk):
        found |= {each.name for each in fields(risk)} - {each.name for each in fields(Risk)}
    return found | (
        {f"problem.{each.name}" for each in fields(Problem)} if "problem" in found else set()
    )


def _parameters(function: Any) -> set[str]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(function).parameters
    return {name for name, each in parameters.items() if each.kind not in kinds} - {"self"}


@cache
def _looked_up(kind: type) -> set[str]:
    """Names that a class takes out of a mapping of options."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "pop") and _mapping(node.func.value):
                found |= _strings(node.args[:1])
        elif isinstance(node, ast.Subscript) and _mapping(node.value):
            found |= _strings([node.slice])
        elif isinstance(node, ast.BinOp) and isinstance(node.right, ast.Set):
            found |= _strings(node.right.elts)
        elif isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Tuple):
            found |= _strings(node.iter.elts)
        elif isinstance(node, ast.FunctionDef) and node.name == "_own":
            found |= _strings(e for t in ast.walk(node) if isinstance(t, ast.Tuple) for e in t.elts)
    return found


def _mapping(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in NAMES


def _strings(nodes: Any) -> set[str]:
    values = [each.value for each in nodes if isinstance(each, ast.Constant)]
    return {each for each in values if isinstance(each, str) and each.isidentifier()}
