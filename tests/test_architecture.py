"""The shape of the code, read from its text: floors, circles, rooms, names, where MPI and torch stand, links of pages.

Each rule yields what breaks it: a key, which KNOWN may hold for a while, and a sentence with file and line.
"""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.launch import PROJECT

CIRCLES_INSIDE: dict[str, tuple[str, ...]] = {}
"""By room, imports that close a circle between its sub-rooms and its own modules (`.`). The list only shrinks."""

KNOWN: dict[str, set[str]] = {
    "sub_rooms_stand_above_or_below": {
        f"{room}: {arrow}" for room, arrows in CIRCLES_INSIDE.items() for arrow in arrows
    },
}
"""Known violations by rule. An entry that no longer occurs fails the test too: remove it then."""

PACKAGES = ("leapmpi", "data_prep")

FLOORS = {
    "leapmpi": (
        *("leapmpi.errors", "leapmpi.version", "leapmpi.registry", "leapmpi.system", "leapmpi.config", "leapmpi.comm"),
        *("leapmpi.dataset", "leapmpi.runs", "leapmpi.report", "leapmpi.sampling", "leapmpi.plan", "leapmpi.nn"),
        *(
            "leapmpi.device",
            "leapmpi.fault_tolerance",
            "leapmpi.features",
            "leapmpi.exchange",
            "leapmpi.engine",
            "leapmpi.full_batch",
        ),
        *("leapmpi.strategies", "leapmpi.scoring", "leapmpi.session", "leapmpi.inference", "leapmpi.evaluation"),
        *("leapmpi.training", "leapmpi.forecast", "leapmpi.job"),
        # The public interface, which is built on jobs.
        *("leapmpi", "leapmpi.tools", "leapmpi.cli", "leapmpi.__main__"),
    ),
    "data_prep": (
        *("data_prep", "data_prep.progress", "data_prep.workspace", "data_prep.mapped_arrays", "data_prep.edges"),
        *("data_prep.formats", "data_prep.assembly", "data_prep.database", "data_prep.sources", "data_prep.detection"),
        *("data_prep.partitioning", "data_prep.commands", "data_prep.cli"),
    ),
}
"""Bottom up: a module imports from its own floor and from those below, by any kind of import."""

PURE = (
    *("leapmpi.system", "leapmpi.config", "leapmpi.dataset", "leapmpi.sampling", "leapmpi.plan", "leapmpi.report"),
    "data_prep",
)
"""Importing these loads neither torch nor mpi4py."""

MEMBER, COMMAND = {"MEMBER"}, {"HELP", "add_arguments", "run"}
MEMBERS = {
    "leapmpi.cli.commands": COMMAND,
    "leapmpi.exchange.modes": MEMBER,
    "leapmpi.nn.models": MEMBER,
    "leapmpi.nn.tasks": MEMBER,
    "leapmpi.nn.scorers": MEMBER,
    "leapmpi.plan.merging": MEMBER,
    "leapmpi.sampling.negatives": MEMBER,
    "leapmpi.sampling.samplers": MEMBER,
    "leapmpi.strategies": MEMBER,
    "leapmpi.tools.export.kinds": MEMBER,
    "leapmpi.scoring.metrics": MEMBER,
    "data_prep.commands": COMMAND,
    "data_prep.database.encoders": MEMBER,
    "data_prep.partitioning.methods": MEMBER,
    "data_prep.sources": MEMBER,
}
"""Folders of which every module is one member of a kind, and the names that such a module has: a|b is one of two."""

MODULES_AT_THE_ROOT = {"leapmpi": 4, "data_prep": 5}

LINES_OF_A_ROOM_DOCSTRING = 6
LONGEST_FUNCTION, LONGEST_MODULE = 60, 400


class Module(NamedTuple):
    """One file of the packages; that of a package bears the package's name."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether this is the `__init__` of a room."""
        return self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        """The package that the module stands in; a package is its own."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    def at(self, line: int = 1) -> str:
        """Where a line stands, as editors and terminals read it."""
        return f"{self.path.relative_to(PROJECT)}:{line}"


class Import(NamedTuple):
    """That `module` imports the module `target`, or `name` from it, and calls it `alias`."""

    module: Module
    target: str
    name: str | None
    alias: str
    line: int
    at_load_time: bool
    in_function: bool


Violations = Iterator[tuple[str, str]]


@cache
def modules() -> dict[str, Module]:
    """All modules of both packages, by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((PROJECT / package).rglob("*.py")):
            parts = path.relative_to(PROJECT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = Module(name, path, ast.parse(path.read_bytes(), str(path)))
    return found


@cache
def imports() -> list[Import]:
    """Every import statement of both packages: at load time, in functions, and for type checkers."""
    return [each for module in modules().values() for each in _imports_in(module, module.tree, False, False)]


def _imports_in(module: Module, node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
    """The imports below `node`."""
    for child in ast.iter_child_nodes(node):
        kind = not (in_function or for_types), in_function
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(module, alias.name, None, alias.asname or alias.name, child.lineno, *kind)
        elif isinstance(child, ast.ImportFrom):
            for alias in child.names:
                source = _source(module, child)
                # A module of a package is imported as such, not as a name of the package.
                whole = f"{source}.{alias.name}"
                target, name = (whole, None) if whole in modules() else (source, alias.name)
                yield Import(module, target, name, alias.asname or alias.name, child.lineno, *kind)
        else:
            deeper = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            types = for_types or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
            yield from _imports_in(module, child, deeper, types)


def _source(module: Module, statement: ast.ImportFrom) -> str:
    """The absolute name of the module that `statement` imports from."""
    if not statement.level:
        return statement.module or ""
    package = module.room.split(".")[: len(module.room.split(".")) - statement.level + 1]
    return ".".join([*package, *filter(None, [statement.module])])


def inner_imports() -> list[Import]:
    """Imports of one module of the packages by another."""
    return [each for each in imports() if each.target in modules() and each.target != each.module.name]


def is_within(name: str, packages: str | tuple[str, ...]) -> bool:
    """Whether the module `name` is one of `packages` or stands in one."""
    candidates = (packages,) if isinstance(packages, str) else packages
    return any(f"{name}.".startswith(f"{package}.") for package in candidates)


def top_room(name: str) -> str:
    """The first two words of a module's name: the unit of floors."""
    return ".".join(name.split(".")[:2])


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node (Tarjan's algorithm), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for after in sorted(graph.get(node, ())):
            if after not in index:
                visit(after)
            if after in stack:
                low[node] = min(low[node], low[after])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def imports_run_downwards() -> Violations:
    """No module imports from a floor above its own."""
    for each in inner_imports():
        upper, lower = top_room(each.module.name), top_room(each.target)
        package = upper.partition(".")[0]
        if package != lower.partition(".")[0]:
            continue
        floors = FLOORS[package]
        missing = [room for room in (upper, lower) if room not in floors]
        if missing:
            yield missing[0], f"{each.module.at(each.line)}: {missing[0]} stands on no floor; add it to FLOORS"
        elif floors.index(lower) > floors.index(upper):
            sentence = f"{upper} imports {each.target}, which stands on a higher floor"
            yield f"{each.module.name} -> {each.target}", f"{each.module.at(each.line)}: {sentence}"


def no_circle_of_files() -> Violations:
    """No two files need each other, be it for types or in functions."""
    yield from _circles_between(lambda module: module)


def no_circle_of_rooms() -> Violations:
    """No two rooms need each other."""
    yield from _circles_between(top_room)


def sub_rooms_stand_above_or_below() -> Violations:
    """Inside a room no two sub-rooms need each other, and each is wholly above or below the room's own modules."""
    for room, module in modules().items():
        if module.is_package and room not in PACKAGES:
            graph, where = _arrows_inside(room)
            for circle in circles(graph):
                for upper, lower in ((a, b) for a in circle for b in sorted(graph[a] & set(circle))):
                    key = f"{room}: {upper} -> {lower}"
                    yield key, f"{where[upper, lower]}: {key} closes a circle of {', '.join(circle)}"


def _arrows_inside(room: str) -> tuple[dict[str, set[str]], dict[tuple[str, str], str]]:
    """Return the imports between the sub-rooms of `room` and its own modules, called `.`, and one place of each."""
    graph, where = defaultdict(set), {}
    for each in inner_imports():
        if is_within(each.module.name, room) and is_within(each.target, room):
            upper, lower = _unit_of(each.module.name, room), _unit_of(each.target, room)
            if upper != lower:
                graph[upper].add(lower)
                where.setdefault((upper, lower), f"{each.module.at(each.line)} imports {each.target}")
    return graph, where


def _unit_of(name: str, room: str) -> str:
    """Return the sub-room of `room` that holds the module `name`; `.` for a module of the room itself."""
    first = name[len(room) + 1 :].partition(".")[0]
    return first if first and modules()[f"{room}.{first}"].is_package else "."


def _circles_between(unit: Callable[[str], str]) -> Violations:
    graph, where = defaultdict(set), {}
    for each in inner_imports():
        a, b = unit(each.module.name), unit(each.target)
        if a != b:
            graph[a].add(b)
            where.setdefault((a, b), f"{each.module.at(each.line)} imports {each.target}")
    for circle in circles(graph):
        arrows = [where[a, b] for a in circle for b in sorted(graph[a] & set(circle))]
        yield " ".join(circle), f"{', '.join(circle)} need each other:\n    " + "\n    ".join(arrows)


def mpi_is_called_in_comm_alone() -> Violations:
    """Only leapmpi/comm imports mpi4py, in whatever way."""
    for each in imports():
        if is_within(each.target, "mpi4py") and not is_within(each.module.name, "leapmpi.comm"):
            yield each.module.name, f"{each.module.at(each.line)}: imports mpi4py, which leapmpi/comm alone may"


def pure_rooms_are_pure() -> Violations:
    """Importing a pure room loads neither torch nor mpi4py, also not by way of what it imports."""
    direct = defaultdict(set)
    for each in imports():
        if each.at_load_time:
            direct[each.module.name].add(each.target)
    for each in imports():
        if is_within(each.module.name, PURE) and not each.in_function:
            chain = _chain_to_heavy(each.target, direct)
            if chain:
                way = " -> ".join([each.module.name, *chain])
                yield f"{each.module.name} -> {each.target}", f"{each.module.at(each.line)}: loads {chain[-1]} ({way})"


def _chain_to_heavy(start: str, direct: dict[str, set[str]]) -> list[str]:
    """Modules from `start` to torch or mpi4py, each loading the next; empty where there is no such way."""
    chains, seen = [[start]], {start}
    for chain in chains:
        if is_within(chain[-1], ("torch", "mpi4py")):
            return chain
        for target in sorted(direct[chain[-1]] - seen):
            seen.add(target)
            chains.append([*chain, target])
    return []


def data_prep_stays_free_of_torch_and_mpi() -> Violations:
    """No module of data_prep imports torch or mpi4py, in functions either."""
    for each in imports():
        if is_within(each.module.name, "data_prep") and is_within(each.target, ("torch", "mpi4py")):
            yield each.module.name, f"{each.module.at(each.line)}: data_prep imports {each.target}"


def leapmpi_needs_no_data_prep() -> Violations:
    """leapmpi never imports data_prep."""
    for each in imports():
        if is_within(each.module.name, "leapmpi") and is_within(each.target, "data_prep"):
            yield each.module.name, f"{each.module.at(each.line)}: leapmpi imports {each.target}"


def private_names_stay_private() -> Violations:
    """No module takes a `_name` from another, by import or as an attribute of an imported module."""
    for each in imports():
        if each.name and each.name.startswith("_") and is_within(each.target, PACKAGES):
            sentence = f"imports {each.name}, which is private to {each.target}"
            yield f"{each.module.name} {each.name}", f"{each.module.at(each.line)}: {sentence}"
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__"):
                name = ast.unparse(node.value)
                if name in _module_names(module):
                    yield f"{module.name} {node.attr}", f"{module.at(node.lineno)}: uses the private {name}.{node.attr}"


@cache
def _names_by_module() -> dict[str, set[str]]:
    names = defaultdict(set)
    for each in inner_imports():
        if each.name is None:
            names[each.module.name].add(each.alias)
    return names


def _module_names(module: Module) -> set[str]:
    """What `module` may call the modules of ours that it imports."""
    return _names_by_module()[module.name]


def few_modules_at_the_root() -> Violations:
    """Modules stand in rooms."""
    for package, most in MODULES_AT_THE_ROOT.items():
        found = [each.path.name for each in modules().values() if each.room == package and not each.is_package]
        if len(found) > most:
            yield package, f"{package}/: {len(found)} modules, at most {most} may stand there: {', '.join(found)}"


def member_folders_hold_members_only() -> Violations:
    """Every module of a member folder has what a member of its kind has; helpers stand elsewhere."""
    for name, module in modules().items():
        required = MEMBERS.get(module.room)
        if module.is_package or required is None:
            continue
        names = _top_level_names(module.tree)
        missing = [each for each in sorted(required) if not names & {*each.split("|")}]
        if missing or module.path.name.startswith("_"):
            yield name, f"{module.at()}: no member of {module.room}: it has no {', '.join(missing) or 'public name'}"


def _top_level_names(tree: ast.Module) -> set[str]:
    """Functions, classes, variables and imported names of a module."""
    names = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def module_names_differ() -> Violations:
    """Outside member folders, no two modules have the same file name."""
    by_name = defaultdict(list)
    for module in modules().values():
        if not module.path.name.startswith("__") and module.room not in MEMBERS:
            by_name[module.path.name].append(module)
    for name, same in sorted(by_name.items()):
        if len(same) > 1:
            yield name, f"{' and '.join(module.at() for module in same)} have the same name"


def rooms_say_what_they_are_for() -> Violations:
    """The `__init__` of a room is a docstring of a few lines and imports nothing."""
    for name, module in modules().items():
        if not module.is_package or name == "leapmpi":
            continue
        docstring = ast.get_docstring(module.tree)
        if not docstring:
            yield name, f"{module.at()}: has no docstring that says what the room is for"
        elif len(docstring.splitlines()) > LINES_OF_A_ROOM_DOCSTRING:
            yield name, f"{module.at()}: its docstring has more than {LINES_OF_A_ROOM_DOCSTRING} lines"
        if any(each.module is module for each in imports()):
            yield f"{name} imports", f"{module.at()}: imports; move the code into a module of the room"


@cache
def pages() -> list[Path]:
    """The Markdown pages of the project: those that git tracks, or all where this is not a checkout."""
    tracked = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=PROJECT, capture_output=True, text=True)
    if tracked.returncode == 0 and tracked.stdout:
        found = [PROJECT / name for name in tracked.stdout.split("\0") if name]
        return [page for page in found if page.is_file()]
    return [page for page in PROJECT.rglob("*.md") if not any(part.startswith(".") for part in page.parts)]


def links_of_pages_resolve() -> Violations:
    """Relative links lead to files that exist, and their anchors to headings."""
    for page in pages():
        for number, line in _lines_outside_code(page):
            for link in re.findall(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)", line):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (page.parent / path).resolve() if path else page
                where = page.relative_to(PROJECT)
                if not target.exists():
                    yield f"{where} {link}", f"{where}:{number}: {link} leads to no file"
                elif anchor and target.suffix == ".md" and anchor not in _anchors(target):
                    yield f"{where} {link}", f"{where}:{number}: {link} leads to no heading of {path or 'this page'}"


def _lines_outside_code(page: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a page without those of fenced code."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


@cache
def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, made as GitHub does."""
    found: dict[str, int] = defaultdict(int)
    for _, line in _lines_outside_code(page):
        if heading := re.match(r"#{1,6}\s+(.*)", line):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            found[slug] += 1
    return {slug if number == 0 else f"{slug}-{number}" for slug, count in found.items() for number in range(count)}


def functions_and_modules_are_short() -> Violations:
    """No function is longer than a screen of 60 lines, no module longer than 400."""
    for name, module in modules().items():
        lines = len(module.path.read_bytes().splitlines())
        if lines > LONGEST_MODULE:
            yield name, f"{module.at()}: {lines} lines, at most {LONGEST_MODULE} in a module"
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    yield f"{name} {node.name}", f"{module.at(node.lineno)}: {node.name} has {lines} lines"


RULES = (
    functions_and_modules_are_short,
    imports_run_downwards,
    no_circle_of_files,
    no_circle_of_rooms,
    sub_rooms_stand_above_or_below,
    mpi_is_called_in_comm_alone,
    pure_rooms_are_pure,
    data_prep_stays_free_of_torch_and_mpi,
    leapmpi_needs_no_data_prep,
    private_names_stay_private,
    few_modules_at_the_root,
    member_folders_hold_members_only,
    module_names_differ,
    rooms_say_what_they_are_for,
    links_of_pages_resolve,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_architecture_holds(rule):
    found, known = list(rule()), KNOWN.get(rule.__name__, set())
    wrong = [sentence for key, sentence in found if key not in known]
    wrong += [f"{key}: no longer so; remove it from KNOWN" for key in sorted(known - {key for key, _ in found})]
    if wrong:
        pytest.fail("\n".join([rule.__doc__, *wrong]), pytrace=False)


def test_known_exceptions_are_of_rules_that_exist():
    assert set(KNOWN) <= {rule.__name__ for rule in RULES}
