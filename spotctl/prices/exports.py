"""Writes the store's rows to a file, or as text to standard output."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from pricing_data.store.store import PriceStore
from spotctl.errors import UsageError
from spotctl.prices.quotes import list_quotes, select_quotes

_ENDINGS = {"csv": (".csv", ".gz"), "parquet": (".parquet",)}


def export_rows(
    store: PriceStore, names: Sequence[str], form: str, output: Path | None, text: BinaryIO
) -> int:
    """Writes rows of the markets ``names``, or of all, to ``output`` or else ``text``; returns how many."""
    markets = [quote.market for quote in select_quotes(list_quotes(store), names, (), ())] if names else None
    if output is not None:
        if output.suffix not in _ENDINGS[form]:
            expected = " or ".join(_ENDINGS[form])
            raise UsageError(
                f"--output {output}: expected a name that ends in {expected} for --format {form}"
            )
        return store.export_rows(output, markets)
    with tempfile.TemporaryDirectory(prefix="spotctl-export-") as folder:
        whole = Path(folder) / "rows.csv"
        rows = store.export_rows(whole, markets)
        with whole.open("rb") as file:
            shutil.copyfileobj(file, text)
        # Here, where a closed pipe can still be reported.
        text.flush()
        return rows
