"""Converts the values of a column by their kind, and finds the first that cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from agileml.api import Kind

Column: TypeAlias = npt.NDArray[Any]

EXPECTED: Final[Mapping[Kind, str]] = {
    Kind.INTEGER: "a whole number (int64)",
    Kind.NUMBER: "a finite number",
    Kind.TEXT: "text",
    Kind.KEY: "a whole number (int64) or a name",
}
"""What error messages say of the values of each kind."""


class WrongColumn(Exception):
    """Raised where a column's type, which is the message, has no values of its kind."""


class WrongCell(Exception):
    """Raised for a value that is not of its column's kind. ``written``: the value, where it is known."""

    def __init__(self, row: int, written: str | None) -> None:
        super().__init__(row, written)
        self.row = row
        self.written = written


def convert_values(values: Column | pd.Series[Any], kind: Kind) -> Column:
    """Returns int64, float64 or ``str`` objects, one row on the first axis.

    Raises WrongCell for the first row that cannot be converted, and WrongColumn where none can.
    """
    if kind is Kind.TEXT and isinstance(values, pd.Series):
        values = values.fillna("")  # CSV does not tell empty text from none
    found = values.to_numpy() if isinstance(values, pd.Series) else values
    missing = np.asarray(pd.isna(values)).reshape(len(found), -1).any(axis=1)
    if missing.any():
        raise WrongCell(int(np.argmax(missing)), None)
    if kind is Kind.TEXT:
        return found.astype(object)
    if found.dtype.kind not in "iufb":
        raise WrongColumn(str(found.dtype))
    converted = found.astype(np.float64)
    fits = np.isfinite(converted)
    whole = kind in (Kind.INTEGER, Kind.KEY)
    if whole:
        fits &= _fits_int64(found)
    wrong = ~fits.reshape(len(found), -1).all(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise WrongCell(row, repr(found[row].tolist()))
    return found.astype(np.int64) if whole else converted


def _fits_int64(values: Column) -> npt.NDArray[np.bool_]:
    """Whether each value stays the same number; NumPy would wrap those that do not, without a word."""
    fits: npt.NDArray[np.bool_]
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        fits = (wide == np.floor(wide)) & (wide >= -(2.0**63)) & (wide < 2.0**63)
    else:
        fits = values <= np.iinfo(np.int64).max
    return fits
