"""What the scenarios are compared with."""

from __future__ import annotations

import pytest

from tests.scenarios.support.product import CLOCKS, product


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model file of a run to which nothing happened; the model in it is the plain loop's."""
    with product(tmp_path_factory.mktemp("undisturbed")) as job:
        job.launch()
        final = job.end()
        assert (final["state"], final["clocks"], final["clocks_redone"]) == ("done", CLOCKS, 0)
        job.check_nothing_left()
        job.check_record(final)
        job.check_model(CLOCKS)
        return job.model.read_bytes()
