"""Reads plain values of options without pydantic, whose import takes longer than most verbs.

Typer reads every value, defaults too, through an adapter of pydantic's. This module reads a text, a number, a
path, a flag or a choice that does not need it. All other values, mistakes included, go on to Typer's own
adapter, so that messages are Typer's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_origin

from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
from typer._param_types import coerce_cli_path

_NUMBER: Final[Mapping[Any, re.Pattern[str]]] = {
    int: re.compile(r"[+-]?\d{1,15}"),
    float: re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?"),
}


class _Unusual(Exception):
    """Marks a value that Typer has to read."""


@dataclass(frozen=True)
class QuickParam(RuntimeParam):
    """Reads plain values of the parameter that ``descriptor`` describes."""

    descriptor: TypeDescriptor

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self._read_value(value, self.annotation, param, ctx)
        except _Unusual:
            return build_runtime_param(self.descriptor)._coerce_value(value, param, ctx)

    def _read_value(self, value: Any, annotation: Any, param: Any, ctx: Any) -> Any:
        info = self.parameter_info
        if get_origin(annotation) is list and isinstance(value, (list, tuple)):
            return [self._read_value(item, get_args(annotation)[0], param, ctx) for item in value]
        if not isinstance(annotation, type):
            raise _Unusual
        if annotation in _NUMBER:
            return self._read_number(value, annotation)
        if issubclass(annotation, Enum):
            return _read_choice(value, annotation)
        if annotation is Path:
            kind = info.path_type or Path
            path = Path(value) if isinstance(value, str) else value
            return coerce_cli_path(path, info, path_type=kind, param=param, ctx=ctx)
        if annotation in (str, bool) and type(value) is annotation:
            return value
        raise _Unusual

    def _read_number(self, value: Any, kind: Any) -> Any:
        if isinstance(value, str) and _NUMBER[kind].fullmatch(value):
            value = kind(value)
        if type(value) is not kind:
            raise _Unusual
        least, most = self.parameter_info.min, self.parameter_info.max
        if (least is not None and value < least) or (most is not None and value > most):
            raise _Unusual
        return value


def _read_choice(value: Any, kind: type[Enum]) -> Enum:
    if isinstance(value, kind):
        return value
    found = [choice for choice in kind if choice.value == value]
    if not found:
        raise _Unusual
    return found[0]


def use_quick_params(command: Any, ctx: Any) -> None:
    """Makes ``QuickParam`` read all parameters of a verb, or of a group of verbs."""
    for param in command.get_params(ctx):
        descriptor = param.type_descriptor
        info = descriptor.parameter_info
        if param._runtime_param is None and descriptor.file_annotation is None and info.parser is None:
            param._runtime_param = QuickParam(info, descriptor.annotation, descriptor)
    for verb in getattr(command, "commands", {}).values():
        use_quick_params(verb, ctx)
