"""Recorded eviction bands, on-demand prices and instance types: each row taken, set aside or left out."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pricing_data.errors import TraceError
from pricing_data.formats.quality import Flaw
from pricing_data.model.market import InstanceType, Market
from pricing_data.model.units import Instant, parse_instant
from pricing_data.store.importing import ImportedFile, import_file
from pricing_data.store.store import AddedRows, PriceStore

NOW = parse_instant("2026-11-20")
THEN = parse_instant("2021-05-30")
BANDS = """snapshot_date,region,os,instance_type,savings_pct,interruption_bucket
2022-01-01,us-east-1,Linux,m5.large,70,0
2022-01-01,us-east-1,Windows,m5.large,40,1
2022-02-01,us-east-1,Linux,m5.large,70,4
"""
LISTED = """region,instance_type,ondemand_usd_hour
us-east-1,m3.medium,0.07
us-west-1,m3.medium,0.077
"""
AWS_TYPES = """instance_type,vcpus,cores,memory_gib,gpu_name,gpu_count
p9.48xlarge,192,96,2048,H900,8
m9.large,2,,8.0,,0
"""
SIZES = """instance_type,vcpus,ram_gb,emr
m9.xlarge,4,16.0,False
p9.24xlarge,96,1024,False
"""
AZURE_TYPES = """Name,vCPUs,MemoryGB
Standard_D96_v9,96,384
Standard_NC96_v9,96,384
"""
GCP_TYPES = """machine_type,a900,cpu,ram,type,l4
x9-standard-8,,8,32,,
a9-highgpu-2g,2,24,170,,
"""
FACTS = (BANDS, LISTED, AWS_TYPES, SIZES, AZURE_TYPES, GCP_TYPES)
RECORDED = {
    "aws-ondemand-2014/ondemand_prices.csv.gz": 0,
    "aws-spot-2015/ondemand_prices.csv.gz": 0,
    "aws-spot-2020-2021/instance_types.csv.gz": 0,
    "aws-spot-advisor/instance_sizes.csv.gz": 64,
    "aws-spot-advisor/spot_advisor.csv.gz": 0,
    "azure-spot-2022-2024/vm_skus.csv.gz": 54,
    "gcp-spot-2022-2026/machine_types.csv.gz": 5,
}
"""And how many of their rows say nothing that can be used."""


def import_text(text: str, folder: Path, as_of: Instant | None = THEN) -> tuple[ImportedFile, PriceStore]:
    (folder / "facts.csv").write_text(text)
    store = PriceStore(folder / "store")
    return import_file(store, folder / "facts.csv", NOW, as_of=as_of, source="mine"), store


@pytest.mark.parametrize(("file", "unusable"), RECORDED.items())
def test_every_row_of_a_recorded_file_is_accounted_for(
    recorded_data: Path, tmp_path: Path, file: str, unusable: int
) -> None:
    with (recorded_data / "MANIFEST.csv").open() as lines:
        expected = next(row for row in csv.DictReader(lines) if row["path"] == file)
    store = PriceStore(tmp_path)
    result = import_file(store, recorded_data / file, NOW, as_of=THEN)
    added, left_out = result.added, result.rows_left_out
    assert result.rows_read == int(expected["rows"])
    assert result.rows_read == added.new + added.known + added.quarantined + left_out
    assert added.quarantined == len(store.quality.list_quarantined()) == unusable
    first, last = (
        None if not at else parse_instant(at) for at in (expected["first_time"], expected["last_time"])
    )
    assert (result.first, result.last) == (first, last)
    again = import_file(store, recorded_data / file, NOW, as_of=THEN).added
    assert again == AddedRows(0, result.rows_read - left_out, 0)


def test_bands_are_rates_of_the_month_behind(tmp_path: Path) -> None:
    result, store = import_text(BANDS, tmp_path, as_of=None)
    assert (result.added, result.rows_left_out) == (AddedRows(2, 0, 0), 1)
    rates = [rate for _, rate in store.evictions.rates()]
    assert {rate.market for rate in rates} == {Market("aws", "us-east-1", "us-east-1", "m5.large")}
    assert [(rate.low, rate.high) for rate in rates] == [(0.0, 0.05), (0.2, 1.0)]
    assert [rate.end for rate in rates] == [parse_instant("2022-01-01"), parse_instant("2022-02-01")]
    assert {rate.end - rate.begin for rate in rates} == {30 * 86400}


def test_list_prices_hold_from_the_date_given(tmp_path: Path) -> None:
    _, store = import_text(LISTED, tmp_path)
    catalogue = store.catalogue()
    assert catalogue.on_demand("aws", "us-west-1", "m3.medium", THEN) == 0.077
    assert catalogue.on_demand("aws", "us-west-1", "m3.medium", Instant(THEN - 1)) is None


@pytest.mark.parametrize(
    ("text", "found", "gpu_name"),
    [
        (AWS_TYPES, InstanceType("aws", "p9.48xlarge", 192, 2048.0, 8), "H900"),
        (AWS_TYPES, InstanceType("aws", "m9.large", 2, 8.0, 0), None),
        (SIZES, InstanceType("aws", "m9.xlarge", 4, 16.0, 0), None),
        (AZURE_TYPES, InstanceType("azure", "Standard_D96_v9", 96, 384.0, 0), None),
        (GCP_TYPES, InstanceType("gcp", "a9-highgpu-2g", 24, 170.0, 2), "A900"),
        (GCP_TYPES, InstanceType("gcp", "x9-standard-8", 8, 32.0, 0), None),
    ],
)
def test_types_are_in_the_catalogue(
    tmp_path: Path, text: str, found: InstanceType, gpu_name: str | None
) -> None:
    _, store = import_text(text, tmp_path)
    assert store.catalogue().instance_type(found.cloud, found.name) == found
    assert store.catalogue().gpu_names.get((found.cloud, found.name)) == gpu_name


@pytest.mark.parametrize(("text", "name"), [(SIZES, "p9.24xlarge"), (AZURE_TYPES, "Standard_NC96_v9")])
def test_nobody_guesses_how_many_gpus_a_type_has(tmp_path: Path, text: str, name: str) -> None:
    result, store = import_text(text, tmp_path)
    assert result.added == AddedRows(1, 0, 1)
    assert f"the file does not say how many GPUs it has: {name}" in store.quality.list_quarantined()[0].text
    assert store.catalogue().instance_type("aws", name) is None


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        (",4\n", ",5\n", "there is no band '5': 2022-02-01,us-east-1"),
        ("2022-02-01", "soon", "soon,us-east-1"),
        ("2022-02-01", "1969-02-01", "('aws', 'us-east-1', 'us-east-1', 'm5.large'"),
        (",4\n", ",4,more\n", "line 4: 2022-02-01,us-east-1,Linux,m5.large,70,4,more"),
    ],
)
def test_a_row_that_says_nothing_keeps_no_other_back(
    tmp_path: Path, good: str, bad: str, reason: str
) -> None:
    result, store = import_text(BANDS.replace(good, bad), tmp_path)
    assert (result.rows_read, result.added) == (3, AddedRows(1, 0, 1))
    assert reason in store.quality.list_quarantined()[0].text


@pytest.mark.parametrize("text", [LISTED, AWS_TYPES, SIZES, AZURE_TYPES, GCP_TYPES])
def test_what_says_no_date_needs_one(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match=r"found no dates .*--as-of DATE"):
        import_text(text, tmp_path, as_of=None)


def test_a_polled_log_states_on_demand_prices_too(tmp_path: Path) -> None:
    lines = [
        "observed_utc,machine_type,region,ondemand_usd_hour,spot_usd_hour",
        "2024-01-01T00:00:00Z,n9,us-east1,1.0,0.2",
        "2024-01-08T00:00:00Z,n9,us-east1,1.0,0.3",
        "2024-01-15T00:00:00Z,n9,us-east1,2.0,",
        "2024-01-22T00:00:00Z,n9,us-east1,,0.3",
        "2024-01-29T00:00:00Z,n9,us-east1,free,0.3",
        "2024-02-05T00:00:00Z,n9,us-east1,0.1,0.3",
    ]
    result, store = import_text("\n".join(lines), tmp_path)
    assert (result.rows_read, result.added, result.list_prices) == (6, AddedRows(5, 0, 1), AddedRows(3, 0, 1))
    held = store.catalogue().list_price_caps("gcp", "us-east1", "n9")
    assert [price for _, price in held] == [1.0, 2.0, 0.1]
    assert Flaw.NOT_FINITE in {row.reason for row in store.quality.list_quarantined()}, "free is no price"
    assert [at for at, _ in held] == [parse_instant(lines[row][:20]) for row in (1, 3, 6)]
    again = import_file(store, tmp_path / "facts.csv", NOW, source="mine")
    assert (again.added, again.list_prices) == (AddedRows(0, 6, 0), AddedRows(0, 4, 0))
