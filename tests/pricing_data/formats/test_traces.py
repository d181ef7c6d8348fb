"""Readers: each layout, the semantics it has, and files that are not what they claim to be."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pricing_data.errors import TraceError
from pricing_data.formats.layouts import Semantics
from pricing_data.formats.quality import Flaw
from pricing_data.formats.traces import Recording, read_trace
from pricing_data.model.market import Market
from pricing_data.model.units import parse_instant

AWS_HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour"
A = "us-east-1,us-east-1a,m4.xlarge,Linux/UNIX"
B = "us-east-1,us-east-1b,m4.xlarge,Linux/UNIX"
GOOD = (f"2016-06-01T00:00:00Z,{A},0.04", f"2016-06-01T01:00:00Z,{A},0.05", f"2016-06-01T02:00:00Z,{A},0.04")
M_A = Market("aws", "us-east-1", "us-east-1a", "m4.xlarge")

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes) -> Path:
        path = tmp_path / "prices.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to_file


def aws(*rows: str) -> str:
    return "\n".join((AWS_HEADER, *rows)) + "\n"


def rows_counted(recording: Recording) -> int:
    return (
        recording.rows_used
        + recording.rows_heartbeat
        + recording.rows_duplicate
        + recording.rows_unlisted
        + recording.rows_quarantined
        + recording.rows_left_out
    )


# ---- layouts -----------------------------------------------------------------------------------


def test_an_event_stream_of_several_clouds(write: Write) -> None:
    """With a product it is Linux alone, as in AWS's own."""
    header = "timestamp_utc,cloud,region,zone,instance_type,product,price_usd_hour"
    google = "gcp,us-central1,us-central1,n2-standard-4,Linux/UNIX"
    rows = [row.replace(A, place) for place in (f"aws,{A}", google) for row in GOOD]
    rows.append(GOOD[0].replace(A, f"aws,{A}").replace("Linux/UNIX", "Windows"))
    recording = read_trace(write("\n".join([header, *rows])))
    assert set(recording.series) == {M_A, Market("gcp", "us-central1", "us-central1", "n2-standard-4")}
    assert all(series.prices.tolist() == [0.04, 0.05, 0.04] for series in recording.series.values())
    assert (recording.semantics, recording.rows_left_out) == (Semantics.EVENT_STREAM, 1)


def test_an_event_stream_of_aws(write: Write) -> None:
    recording = read_trace(write(aws(*GOOD, f"2016-06-01T03:00:00Z,{A},0.04")))
    assert recording.semantics is Semantics.EVENT_STREAM
    assert recording.series[M_A].prices.tolist() == [0.04, 0.05, 0.04]
    assert recording.series[M_A].times[1] == parse_instant("2016-06-01T01:00:00Z")
    assert (recording.rows_read, recording.rows_used, recording.rows_heartbeat) == (4, 3, 1)
    assert recording.last == parse_instant("2016-06-01T03:00:00Z"), "a heartbeat extends what is known"
    assert recording.findings == ()
    assert not recording.generated
    assert recording.history.price(M_A, recording.last) == 0.04


def test_zone_ids_name_their_region(write: Write) -> None:
    header = "timestamp_utc,zone_id,instance_type,product,price_usd_hour"
    rows = [
        f"2022-05-31T18:20:41Z,{zone},c5.large,Linux/UNIX,0.03"
        for zone in ("use1-az1", "apne3-az2", "sae1-az1", "odd1-az1")
    ]
    regions = {market.region for market in read_trace(write("\n".join((header, *rows)))).series}
    assert regions == {"us-east-1", "ap-northeast-3", "sa-east-1", "odd1"}


def test_other_products_and_unwanted_markets_are_left_out(write: Write) -> None:
    rows = (*GOOD, GOOD[0].replace("Linux/UNIX", "Windows"), f"2016-06-01T00:00:00Z,{B},0.07")
    recording = read_trace(write(aws(*rows)), only=lambda market: market.zone == "us-east-1a")
    assert set(recording.series) == {M_A}
    assert (recording.rows_used, recording.rows_left_out, recording.rows_read) == (3, 2, 5)
    both = read_trace(write(aws(*rows)))
    assert (len(both.series), both.rows_left_out) == (2, 1)


def test_approximate_times_are_used_and_shown(write: Write) -> None:
    rows = [f"{row},{quality}" for row, quality in zip(GOOD, ("exact", "approx", "approx"), strict=True)]
    recording = read_trace(write("\n".join((AWS_HEADER + ",time_quality", *rows))))
    assert [(found.kind, found.count) for found in recording.findings] == [(Flaw.APPROXIMATE, 2)]
    assert (recording.rows_used, recording.rows_quarantined) == (3, 0)


def test_a_polled_log_of_azure_shows_when_a_market_was_gone(write: Write) -> None:
    text = """observed_utc,sku,region,spot_usd_hour
2023-09-23T10:00:00Z,Standard_D2s_v3,eastus,0.02
2023-09-24T10:00:00Z,Standard_D2s_v3,eastus,
2023-09-25T10:00:00Z,Standard_D2s_v3,eastus,0.02
"""
    recording = read_trace(write(text))
    market = Market("azure", "eastus", "eastus", "Standard_D2s_v3")
    assert recording.semantics is Semantics.POLLED
    assert len(recording.series[market]) == 2
    assert recording.delisted[market].tolist() == [parse_instant("2023-09-24T10:00:00Z")]
    assert (recording.rows_used, recording.rows_unlisted) == (2, 1)


def test_a_polled_log_of_gcp_has_no_spot_price_at_first(write: Write) -> None:
    text = """observed_utc,machine_type,region,ondemand_usd_hour,spot_usd_hour
2022-02-09T23:07:12Z,n1-standard-4,us-central1,0.19,
2023-05-08T10:00:00Z,n1-standard-4,us-central1,0.19,0.04
2023-06-08T10:00:00Z,n1-standard-4,us-central1,0.18,0.04
"""
    recording = read_trace(write(text))
    market = Market("gcp", "us-central1", "us-central1", "n1-standard-4")
    assert recording.series[market].prices.tolist() == [0.04]
    assert recording.delisted[market].tolist() == []
    assert (recording.rows_used, recording.rows_unlisted, recording.rows_heartbeat) == (1, 1, 1)


def test_daily_low_priority_prices_of_azure(write: Write) -> None:
    text = (
        "date,region,sku,lowpriority_usd_hour,gpu_type,n_gpus\n2020-02-24,us_east,NC12s v2,0.54482,P100,2\n"
    )
    recording = read_trace(write(text))
    assert recording.semantics is Semantics.POLLED
    assert recording.first == parse_instant("2020-02-24")


def test_gzip_is_told_by_content_and_columns_by_name(write: Write) -> None:
    header = "price_usd_hour,product,instance_type,zone,region,timestamp_utc,note"
    text = f"{header}\n0.04,Linux/UNIX,m4.xlarge,us-east-1a,us-east-1,2016-06-01,mine\n"
    expected = read_trace(write(text)).series[M_A].prices.tolist()
    assert read_trace(write(gzip.compress(text.encode()))).series[M_A].prices.tolist() == expected == [0.04]


def test_windows_line_ends_a_byte_order_mark_and_quotes_are_no_trouble(write: Write) -> None:
    quoted = "\r\n".join([AWS_HEADER, *(",".join(f'"{field}"' for field in row.split(",")) for row in GOOD)])
    assert read_trace(write("\ufeff" + quoted)).rows_used == 3


# ---- files that cannot be read as what they claim to be ----------------------------------------

WHOLE_GZIP = gzip.compress(aws(*GOOD).encode())
DAMAGED_GZIP = WHOLE_GZIP[:30] + b"\xff" * 8 + WHOLE_GZIP[38:]
NEVER_LISTED = "observed_utc,sku,region,spot_usd_hour\n2023-09-23,D2,eastus,\n"


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        pytest.param("", None, "an empty file", id="empty"),
        pytest.param(gzip.compress(b""), None, "an empty file", id="empty gzip"),
        pytest.param(WHOLE_GZIP[:-20], None, "cannot be unpacked", id="truncated gzip"),
        pytest.param(b"\x1f\x8b" + b"junk" * 9, None, "cannot be unpacked", id="gzip in name only"),
        pytest.param(DAMAGED_GZIP, None, "cannot be unpacked", id="damaged gzip"),
        pytest.param(b"\x89PNG\r\n\x1a\n\x00\x00\xff", 1, "not UTF-8 text (89 50 4e 47)", id="image"),
        pytest.param(aws(*GOOD).encode("utf-16"), 1, "not UTF-8", id="UTF-16"),
        pytest.param(aws(GOOD[0]).encode() + b"\xff\xfe\n", 3, "not UTF-8", id="binary further down"),
        pytest.param(aws(GOOD[0]) + "\0\0\0\n", 3, "binary data", id="zero bytes"),
        pytest.param("a,b,c\n1,2,3\n", 1, "the columns 'a,b,c'", id="wrong columns"),
        pytest.param("\n".join(GOOD), 1, "the columns '2016-06-01T00:00:00Z", id="no header"),
        pytest.param(aws(*GOOD).replace(",", ";"), 1, "the columns", id="semicolons"),
        pytest.param(AWS_HEADER + ",zone\n", 1, "the column 'zone' twice", id="a column twice"),
        pytest.param('{"SpotPriceHistory": []}', 1, "the columns", id="JSON"),
        pytest.param("\n\n\n", 1, "the columns ''", id="blank lines"),
        pytest.param(AWS_HEADER + "\n", None, "no row with a price", id="header only"),
        pytest.param(aws(f"soon,{A},0.04", f"late,{A},0.04"), 2, "unreadable time: 2", id="no usable time"),
        pytest.param(aws(f"2016-06-01,{A},NaN"), 2, "price is not finite: 1 rows", id="no usable price"),
        pytest.param(aws("2016-06-01,0.04"), 2, "wrong number of fields: 1 rows", id="no usable row"),
        pytest.param(NEVER_LISTED, None, "no row with a price", id="never listed"),
        pytest.param(aws(*GOOD, f'2016-06-02,{A},"' + "9" * 200_000), 5, "field larger", id="endless field"),
    ],
)
def test_a_file_that_is_not_a_price_file_is_refused_with_one_clear_message(
    write: Write, content: str | bytes, line: int | None, message: str
) -> None:
    path = write(content)
    with pytest.raises(TraceError) as refusal:
        read_trace(path)
    text = str(refusal.value)
    assert text.startswith(str(path) if line is None else f"{path}, line {line}: found ")
    assert message in text
    assert "; expected " in text
    assert text.endswith(".")
    assert "\n" not in text
    assert refusal.value.line == line


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "missing.csv")
    with pytest.raises(TraceError, match="is a directory"):
        read_trace(tmp_path)


def test_asking_for_markets_that_are_not_there_says_which_are(write: Write) -> None:
    with pytest.raises(TraceError, match=r"holds m4\.xlarge@us-east-1a"):
        read_trace(write(aws(*GOOD)), only=lambda market: market.instance_type == "p3.2xlarge")


# ---- single bad rows -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "flaw"),
    [
        (f"2016-06-01T99:00:00Z,{A},0.06", Flaw.TIME),
        (f"2016-02-30,{A},0.06", Flaw.TIME),
        (f",{A},0.06", Flaw.TIME),
        (f"1464739200,{A},0.06", Flaw.TIME),
        (f"2016-06-01T05:00:00Z,{A},cheap", Flaw.PRICE),
        (f"2016-06-01T05:00:00Z,{A},", Flaw.PRICE),
        (f"2016-06-01T05:00:00Z,{A},$0.06", Flaw.PRICE),
        (f"2016-06-01T05:00:00Z,{A},nan", Flaw.NOT_FINITE),
        (f"2016-06-01T05:00:00Z,{A},inf", Flaw.NOT_FINITE),
        (f"2016-06-01T05:00:00Z,{A},-inf", Flaw.NOT_FINITE),
        (f"2016-06-01T05:00:00Z,{A},1e999", Flaw.NOT_FINITE),
        (f"2016-06-01T05:00:00Z,{A},-0.06", Flaw.NEGATIVE),
        (f"2016-06-01T05:00:00Z,{A},0", Flaw.ZERO),
        (f"2016-06-01T05:00:00Z,{A},60000", Flaw.ABSURD),
        (f"2016-06-01T05:00:00Z,{A},-0.0", Flaw.ZERO),
        (f"2016-06-01T01:00:00Z,{A},0.06", Flaw.CONFLICT),
        (f"2016-06-01T05:00:00Z,{A}", Flaw.FIELDS),
        (f"2016-06-01T05:00:00Z,{A},0.06,0.07", Flaw.FIELDS),
        ("2016-06-01T05:00", Flaw.FIELDS),
    ],
)
def test_a_bad_row_is_quarantined_counted_and_shown(write: Write, row: str, flaw: Flaw) -> None:
    recording = read_trace(write(aws(*GOOD[:2], row, GOOD[2])))
    clean = read_trace(write(aws(*GOOD)))
    assert recording.series[M_A].times.tolist() == clean.series[M_A].times.tolist()
    assert recording.series[M_A].prices.tolist() == clean.series[M_A].prices.tolist()
    (found,) = recording.findings
    assert (found.kind, found.count) == (flaw, 1)
    assert [(example.line, example.text) for example in found.examples] == [(4, row)]
    assert recording.rows_quarantined == 1
    assert recording.rows_read == rows_counted(recording) == 4


def test_rows_out_of_order_are_sorted_in_and_shown(write: Write) -> None:
    recording = read_trace(write(aws(GOOD[2], GOOD[0], GOOD[1])))
    assert recording.series[M_A].prices.tolist() == [0.04, 0.05, 0.04]
    (found,) = recording.findings
    assert (found.kind, found.count, recording.rows_quarantined) == (Flaw.UNORDERED, 2, 0)


def test_a_long_silence_is_shown_where_rows_were_due(write: Write) -> None:
    recording = read_trace(
        write(aws(*GOOD, f"2016-06-03T02:00:01Z,{A},0.04", f"2016-06-03T03:00:00Z,{A},0.05"))
    )
    assert [(found.kind, found.examples[0].line) for found in recording.findings] == [(Flaw.SILENCE, 5)]
    assert (recording.rows_used, recording.rows_heartbeat, recording.rows_quarantined) == (4, 1, 0)


def test_exact_duplicates_are_dropped_and_counted(write: Write) -> None:
    recording = read_trace(write(aws(GOOD[0], *GOOD, GOOD[2])))
    assert (recording.rows_used, recording.rows_duplicate, recording.findings) == (3, 2, ())


def test_blank_lines_are_not_rows_and_do_not_shift_line_numbers(write: Write) -> None:
    recording = read_trace(write(aws(GOOD[0], "", GOOD[1], f"2016-06-01T05:00:00Z,{A},0")))
    assert recording.rows_read == 3
    assert recording.findings[0].examples[0].line == 5


def test_reading_needs_neither_pandas_nor_scipy() -> None:
    code = (
        "import sys, pricing_data.formats.traces; sys.exit('pandas' in sys.modules or 'scipy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
