"""Trains models on machines that come and go, with nothing lost: an elastic parameter server.

``run`` trains on a Ray cluster, ``load_model`` reads what it trained. Importing this package imports neither
Ray nor NumPy; using one of the two does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agileml.data.model_files import load_model
    from agileml.ray.run import run

__all__ = ["load_model", "run"]


def __getattr__(name: str) -> object:
    """Returns ``run`` or ``load_model``, imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "agileml.ray.run" if name == "run" else "agileml.data.model_files"
    try:
        return getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ImportError("agileml.run needs Ray; install it with: pip install 'spotctl[ray]'") from error
