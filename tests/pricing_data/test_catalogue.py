"""List prices hold from their date on; what is not known is None, never a neighbour's figure."""

from __future__ import annotations

import csv
import gzip
from importlib.resources import files
from pathlib import Path

import pytest

from pricing_data.catalogue import Catalogue
from pricing_data.model.units import parse_instant


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.bundled()


@pytest.mark.parametrize(
    ("name", "date", "price"),
    [
        ("m4.xlarge", "2015-06-10", None),  # not launched
        ("m4.xlarge", "2015-06-11", 0.252),
        ("m4.xlarge", "2016-06-05", 0.239),
        ("m4.xlarge", "2016-11-30T23:59:59Z", 0.239),
        ("m4.xlarge", "2016-12-01", 0.215),
        ("m4.xlarge", "2026-01-01", 0.200),
        ("c4.2xlarge", "2016-06-05", 0.419),
        ("c3.xlarge", "2015-03-11", 0.210),
        ("d2.8xlarge", "2015-03-31", 5.520),
        ("g2.8xlarge", "2016-02-24", 2.600),
        ("nonesuch", "2016-06-05", None),
    ],
)
def test_the_price_is_the_one_of_the_date(
    catalogue: Catalogue, name: str, date: str, price: float | None
) -> None:
    assert catalogue.on_demand("aws", "us-east-1", name, parse_instant(date)) == price


def test_regions_and_clouds_do_not_lend_each_other_prices(catalogue: Catalogue) -> None:
    at = parse_instant("2024-01-01")
    assert catalogue.on_demand("aws", "us-west-2", "m5.xlarge", at) == 0.192
    assert catalogue.on_demand("aws", "eu-west-1", "m5.xlarge", at) is None
    assert catalogue.on_demand("gcp", "us-east-1", "m5.xlarge", at) is None


def test_every_price_is_of_a_known_type_and_every_type_has_a_price(catalogue: Catalogue) -> None:
    assert {(cloud, name) for cloud, _, name in catalogue.list_prices} == set(catalogue.instance_types)
    assert all(price > 0 for prices in catalogue.list_prices.values() for _, price in prices)
    assert all(kind.vcpus > 0 and kind.memory_gib > 0 for kind in catalogue.instance_types.values())


def test_list_prices_of_a_type_have_only_ever_fallen(catalogue: Catalogue) -> None:
    for key, prices in catalogue.list_prices.items():
        steps = [price for _, price in prices]
        assert steps == sorted(steps, reverse=True), key


def test_types_of_a_cloud_are_listed_by_name(catalogue: Catalogue) -> None:
    for cloud in ("aws", "gcp", "azure"):
        names = [kind.name for kind in catalogue.instance_types_of(cloud)]
        assert names == sorted(names)
        assert len(names) > 10
    assert catalogue.instance_types_of("moon") == ()
    gpu = catalogue.instance_type("aws", "p3.8xlarge")
    assert gpu is not None
    assert (gpu.vcpus, gpu.memory_gib, gpu.gpus) == (32, 244.0, 4)


def test_every_type_with_gpus_says_which(catalogue: Catalogue) -> None:
    names = catalogue.gpu_names
    assert set(names) == {key for key, kind in catalogue.instance_types.items() if kind.gpus}
    assert (names["aws", "p3.8xlarge"], names["azure", "Standard_NC6"]) == ("V100", "K80")


def test_gpus_are_called_as_they_were_recorded(catalogue: Catalogue, recorded_data: Path) -> None:
    path = recorded_data / "aws-spot-2020-2021" / "instance_types.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        recorded = {row["instance_type"]: row["gpu_name"] for row in csv.DictReader(file) if row["gpu_name"]}
    common = {name for cloud, name in catalogue.gpu_names if cloud == "aws"} & recorded.keys()
    assert len(common) > 8
    assert {name: catalogue.gpu_names["aws", name] for name in common} == {
        name: recorded[name] for name in common
    }


def test_the_figures_name_their_sources() -> None:
    text = files("pricing_data.catalogue").joinpath("SOURCES.md").read_text(encoding="utf-8")
    for family in (
        "c3",
        "c4",
        "m3",
        "m4",
        "d2",
        "r3",
        "p2",
        "c5",
        "m5",
        "r5",
        "p3",
        "g4dn",
        "g5",
        "GCP",
        "Azure",
    ):
        assert family in text
