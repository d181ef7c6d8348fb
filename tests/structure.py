"""Counts what makes a code base easy or hard to find one's way in: ``python -m tests.structure [FOLDER]``.

FOLDER is a checkout, this one by default; ``--list NAME`` shows what is behind a count, ``--draw N`` draws
names at random. Source is the four packages, without tests.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import signal
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

PACKAGES: Final = ("agileml", "bidbrain", "pricing_data", "spotctl")
SHORT: Final = 40
"""Lines below which a module needs a reason of its own."""
_OPENINGS: Final = frozenset(
    {"of", "as", "by", "what", "who", "which", "when", "how", "whose", "whom", "whoever"}
)
_KINDS_BY_ABSENCE: Final = re.compile(r"\b(command|checkpoints)\b is (not )?None")
_MAY_ASK: Final = ("spotctl/engines/", "spotctl/job/")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """A source file: ``name`` is its path below the checkout."""

    name: str
    text: str
    tree: ast.Module

    @property
    def dotted(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_page(self) -> bool:
        """Whether it is a package's own module, which names what is in the folder."""
        return self.name.endswith("__init__.py")

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    def classes(self) -> Iterator[ast.ClassDef]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))

    def functions(self) -> Iterator[Function]:
        """Yields functions and methods, without those whose names Python prescribes."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function) and not node.name.startswith("__"):
                yield node


def read_modules(root: Path, packages: tuple[str, ...] = PACKAGES) -> list[Module]:
    """Reads all modules of ``packages`` below ``root``."""
    paths = sorted(path for package in packages for path in (root / package).rglob("*.py"))
    texts = ((str(path.relative_to(root)), path.read_text(encoding="utf-8")) for path in paths)
    return [Module(name, text, ast.parse(text)) for name, text in texts]


def modules_by_folder(modules: list[Module]) -> Counter[str]:
    return Counter(str(Path(module.name).parent) for module in modules if not module.is_page)


def modules_named_in(page: str) -> list[str]:
    """Returns the file names in double backticks, such as ``base.py``."""
    return re.findall(r"``(\w+\.py)``", page)


def short_modules(modules: list[Module]) -> list[str]:
    return [m.name for m in modules if not m.is_page and len(m.text.splitlines()) < SHORT]


def shared_class_names(modules: list[Module]) -> dict[str, list[str]]:
    """Returns the public class names that more than one module defines, and those modules."""
    found = defaultdict(list)
    for module in modules:
        for name in {node.name for node in module.tree.body if isinstance(node, ast.ClassDef)}:
            if not name.startswith("_"):
                found[name].append(module.name)
    return {name: sorted(names) for name, names in sorted(found.items()) if len(names) > 1}


def one_word_functions(modules: list[Module]) -> tuple[list[str], int]:
    """Returns functions whose name is one word, and how many functions there are."""
    found = [(module, node) for module in modules for node in module.functions()]
    one_word = [f"{m.name}: {node.name}" for m, node in found if "_" not in node.name.strip("_")]
    return one_word, len(found)


def docstrings(modules: list[Module]) -> Iterator[tuple[str, str]]:
    """Yields each docstring with where it stands, strings below assignments included."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, (ast.Module, ast.ClassDef, Function)) and (doc := ast.get_docstring(node)):
                yield f"{module.name}: {getattr(node, 'name', 'the module')}", doc


def bad_openings(modules: list[Module]) -> tuple[list[str], int]:
    """Returns docstrings that open with a preposition or a question word, and how many there are."""
    found = list(docstrings(modules))
    bad = []
    for place, doc in found:
        first = re.match(r"\w+", doc)
        if first and first[0].lower() in _OPENINGS:
            bad.append(f"{place}: {doc.splitlines()[0]}")
    return bad, len(found)


def comment_lines(modules: list[Module]) -> int:
    lines = 0
    for module in modules:
        tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
        lines += sum(token.type == tokenize.COMMENT for token in tokens)
    return lines


def fields_by_class(modules: list[Module]) -> Counter[str]:
    """Counts annotated fields of each class, those with defaults included, ClassVars not."""
    found: Counter[str] = Counter()
    for module in modules:
        for node in module.classes():
            found[f"{module.name}: {node.name}"] = sum(
                isinstance(part, ast.AnnAssign) and "ClassVar" not in ast.unparse(part.annotation)
                for part in node.body
            )
    return found


def methods_by_class(modules: list[Module]) -> Counter[str]:
    """Counts methods and properties of each class, without those whose names Python prescribes."""
    found: Counter[str] = Counter()
    for module in modules:
        for node in module.classes():
            names = (part.name for part in node.body if isinstance(part, Function))
            found[f"{module.name}: {node.name}"] = sum(not name.startswith("__") for name in names)
    return found


def import_graph(modules: list[Module]) -> dict[str, set[str]]:
    """Maps each module to those of ``modules`` that it imports when it is loaded."""
    known = {module.dotted for module in modules}
    graph = {}
    for module in modules:
        imported = set()
        for node in _loaded_at_import(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                imported |= (names & known) | ({node.module} & known if names - known else set())
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names} & known
        graph[module.dotted] = imported - {module.dotted}
    return graph


def _loaded_at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Yields statements outside functions and outside ``if TYPE_CHECKING``."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, Function) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        ):
            continue
        yield node
        pending.extend(ast.iter_child_nodes(node))


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns groups of modules that import each other in a circle."""
    reached = {start: _reachable(graph, start) for start in graph}
    found = {
        tuple(sorted(other for other in reached[start] if start in reached[other]))
        for start in graph
        if start in reached[start]
    }
    return [list(group) for group in sorted(found)]


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    pending = list(graph[start])
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending.extend(graph[node])
    return seen


def kinds_by_absence(modules: list[Module]) -> list[str]:
    """Returns lines that learn a job's kind from what it lacks, outside the engines and the job file."""
    return [
        f"{module.name}:{number}: {line.strip()}"
        for module in modules
        if module.name.startswith("spotctl/") and not module.name.startswith(_MAY_ASK)
        for number, line in enumerate(module.text.splitlines(), 1)
        if _KINDS_BY_ABSENCE.search(line)
    ]


def draw_names(modules: list[Module], count: int, seed: int) -> list[str]:
    """Returns public classes and functions of modules, each with the first line of its docstring."""
    named = {
        f"{module.name}: {node.name}": (ast.get_docstring(node) or "(no docstring)").splitlines()[0]
        for module in modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_")
    }
    drawn = random.Random(seed).sample(sorted(named), count)
    return [f"{name} - {named[name]}" for name in drawn]


def main() -> None:
    """Prints the counts, or what is behind one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.structure", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--list", default="", help="show what is behind this count")
    parser.add_argument(
        "--draw", type=int, default=0, metavar="N", help="show N public names, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    said = parser.parse_args()
    modules = read_modules(said.folder)
    if said.draw:
        print(f"seed {said.seed}", *draw_names(modules, said.draw, said.seed), sep="\n")
        return
    folders = modules_by_folder(modules)
    short, shared = short_modules(modules), shared_class_names(modules)
    one_word, functions = one_word_functions(modules)
    openings, strings = bad_openings(modules)
    lines = sum(len(module.text.splitlines()) for module in modules)
    comments = comment_lines(modules)
    fields, methods = fields_by_class(modules), methods_by_class(modules)
    circular, asked = circles(import_graph(modules)), kinds_by_absence(modules)
    counts: dict[str, tuple[str, list[str]]] = {
        "lines": (f"{lines}", []),
        "modules": (f"{len(modules)}", []),
        "folders": (
            f"{len(folders)} folders, the largest of {max(folders.values())} modules",
            _ranked(folders),
        ),
        "short": (f"{len(short)} modules under {SHORT} lines", short),
        "shared": (
            f"{len(shared)} public class names in more than one module",
            [f"{name}: {', '.join(places)}" for name, places in shared.items()],
        ),
        "one-word": (f"{len(one_word) / functions:.1%} of {functions} function names are one word", one_word),
        "openings": (
            f"{len(openings) / strings:.1%} of {strings} docstrings open with Of, As, By, What, Who ...",
            openings,
        ),
        "comments": (f"{comments / lines:.2%} of lines have a comment", []),
        "fields": (f"{max(fields.values())} fields in the largest value", _ranked(fields)[:30]),
        "methods": (f"{max(methods.values())} methods in the largest class", _ranked(methods)[:30]),
        "circles": (f"{len(circular)} circles of modules", [" ".join(group) for group in circular]),
        "absence": (f"{len(asked)} places that learn a job's kind from what it lacks", asked),
    }
    if said.list:
        print(*counts[said.list][1], sep="\n")
        return
    for name, (count, _) in counts.items():
        print(f"{name:10} {count}")


def _ranked(counts: Counter[str]) -> list[str]:
    return [f"{count:4} {name}" for name, count in counts.most_common()]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends quietly under head; not where tests call main()
    main()
