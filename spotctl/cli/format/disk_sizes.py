"""Says how much disk runs take: their records, and the cut input that they share."""

from __future__ import annotations

from typing import Any

from spotctl.cli.format import amounts
from spotctl.records.run import Run, RunStore
from spotctl.records.shared_inputs import InputStore, claim_of


def describe_inputs(runs: RunStore) -> str:
    """Says how much cut input is kept."""
    kept = InputStore(runs.root).list_inputs()
    total = amounts.format_size(sum(one.size_bytes for one in kept))
    sets = amounts.count_noun(len(kept), "data set")
    return f"kept on disk: {total} of cut input for {sets}; `spotctl prune` frees what no run needs"


def describe_run(runs: RunStore, run: Run) -> str:
    """Says how much a run's record takes, and its input."""
    from spotctl.prune import size_of  # for one run only: it loads all that removes runs

    told = f"kept on disk: {amounts.format_size(size_of(run.folder))} of record"
    found = _input_of(runs, run)
    if found is None:
        return told
    others = found["runs"] - 1
    shared = f", shared with {amounts.count_noun(others, 'other run')}" if others else ""
    return f"{told}, {amounts.format_size(found['bytes'])} of cut input{shared}"


def sizes_document(runs: RunStore, run: Run | None) -> dict[str, Any]:
    """Returns bytes, of one run or of all, for programs."""
    if run is not None:
        from spotctl.prune import size_of

        return {"record_bytes": size_of(run.folder), "input": _input_of(runs, run)}
    kept = InputStore(runs.root).list_inputs()
    return {"inputs": len(kept), "input_bytes": sum(one.size_bytes for one in kept)}


def _input_of(runs: RunStore, run: Run) -> dict[str, Any] | None:
    key, store = claim_of(run.folder), InputStore(runs.root)
    size = next((one.size_bytes for one in store.list_inputs() if one.key == key), None)
    return None if size is None or key is None else {"bytes": size, "runs": store.count_users(key)}
