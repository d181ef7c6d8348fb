"""``prices`` and ``advise`` as scripts see them: what goes where, exit codes, JSON, and what is warned of."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from pricing_data.model.units import Instant, format_instant
from spotctl.timesource import wall_clock
from tests.spotctl.cli.commandline import spotctl

HEADER = "timestamp_utc,region,zone,instance_type,product,price_usd_hour\n"
VERBS = ("fetch", "import", "status", "show", "history", "plot", "export")


def answer(*arguments: str) -> dict[str, Any]:
    result = spotctl(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def row(zone: str, kind: str, at: str, price: str) -> str:
    return f"{at},us-east-1,us-east-1{zone},{kind},Linux/UNIX,{price}\n"


def days_ago(days: float) -> str:
    return format_instant(Instant(int(wall_clock() - days * 86400)))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "home"


@pytest.fixture
def auctions(tmp_path: Path) -> Path:
    """June 2016: a market that spikes every day, one that is quiet, one whose last row is absurd."""
    rows = []
    for day in range(1, 31):
        rows.append(row("a", "c4.xlarge", f"2016-06-{day:02d}T00:00:00Z", "0.0400"))
        rows.append(row("a", "c4.xlarge", f"2016-06-{day:02d}T12:00:00Z", "0.9000"))
        rows.append(row("a", "c4.xlarge", f"2016-06-{day:02d}T12:30:00Z", "0.0400"))
        rows.append(row("b", "c4.xlarge", f"2016-06-{day:02d}T00:00:00Z", "0.0500"))
        rows.append(row("d", "c4.xlarge", f"2016-06-{day:02d}T00:00:00Z", "0.0100"))
    rows.append(row("d", "c4.xlarge", "2016-06-30T18:00:00Z", "4000.0"))
    path = tmp_path / "auctions.csv"
    path.write_text(HEADER + "".join(rows))
    return path


def test_every_help_has_examples_before_its_options() -> None:
    for verb in VERBS:
        result = spotctl("prices", verb, "--help")
        assert result.exit_code == 0
        examples = result.stdout.partition("\n\nOptions:")[0].partition("  Examples:\n")[2]
        assert f"spotctl prices {verb}" in examples


def test_help_and_nothing_loads_no_database() -> None:
    code = (
        "import sys\nfrom spotctl.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('duckdb', 'pandas', 'numpy', 'boto3', 'google.cloud', 'azure', 'rich.table')"
        " if m in sys.modules], file=sys.stderr)"
    )
    for arguments in (["prices", "--help"], ["prices", "fetch", "--help"], ["advise", "--help"]):
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, timeout=60
        )
        assert ran.stderr.strip() == "[]", ran.stderr


# ---- import, status, show -----------------------------------------------------------------------


def test_every_row_of_an_imported_file_is_accounted_for(auctions: Path) -> None:
    (first,) = answer("prices", "import", str(auctions))["files"]
    assert (first["rows_read"], first["new"], first["quarantined"]) == (151, 150, 1)
    assert first["first"] == "2016-06-01T00:00:00Z"
    (again,) = answer("prices", "import", str(auctions))["files"]
    assert (again["new"], again["known"]) == (0, 151)


def test_a_file_that_is_none_does_not_stop_the_others(auctions: Path, tmp_path: Path) -> None:
    (tmp_path / "holiday.csv").write_text("day,weather\n1,rain\n")
    result = spotctl("prices", "import", "holiday.csv", str(auctions), "absent.csv")
    assert result.exit_code == 2
    assert "holiday.csv, line 1: found the columns 'day,weather'" in result.stderr
    assert "absent.csv: found no such file" in result.stderr
    assert answer("prices", "status")["regions"][0]["rows"] == 150


def test_ctrl_c_once_all_rows_are_in_says_that_they_are(auctions: Path) -> None:
    """While what makes the tables is being loaded."""
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'spotctl.prices.market_table_build':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from spotctl.__main__ import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "prices", "import", str(auctions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stderr.splitlines()[-1].startswith("spotctl: interrupted: all rows are in the store")
    assert answer("prices", "status")["regions"][0]["rows"] == 150


def test_status_shows_what_is_wrong_with_examples(auctions: Path) -> None:
    spotctl("prices", "import", str(auctions))
    status = answer("prices", "status")
    (corner,) = status["regions"]
    assert (corner["cloud"], corner["region"], corner["markets"]) == ("aws", "us-east-1", 3)
    assert (corner["stale"], corner["doubted"]) == (3, 1)
    assert corner["believed"] == [{"source": corner["believed"][0]["source"], "markets": 3}]
    (finding,) = status["findings"]
    assert (finding["kind"], finding["count"]) == ("absurdly high price", 1)
    assert "4000 $/h" in finding["examples"][0]
    shown = spotctl("prices", "status").stdout
    assert "1 x absurdly high price (in quarantine)" in shown


def test_an_empty_store_says_what_to_do() -> None:
    for verb in ("status", "show"):
        told = spotctl("prices", verb)
        assert ("`spotctl prices fetch`" in told.stderr, told.stdout) == (True, "")
    result = spotctl("prices", "show", "c4.xlarge")
    assert result.exit_code == 2
    assert "`spotctl prices fetch` or `import`" in result.stderr


def test_show_says_age_and_source_and_warns_when_stale(auctions: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.csv"
    fresh.write_text(
        HEADER + row("a", "m5.large", days_ago(3), "0.03") + row("a", "m5.large", days_ago(0.2), "0.04")
    )
    spotctl("prices", "import", str(auctions), str(fresh))
    (new,) = answer("prices", "show", "m5.large")["prices"]
    assert (new["price"], new["stale"]) == ("0.040000", False)
    assert 0 <= new["age_seconds"] - 0.2 * 86400 < 60
    assert new["source"].endswith("fresh.csv")
    old = spotctl("prices", "show", "c4.xlarge@us-east-1b")
    assert "1 of 1 prices are stale" in old.stderr
    assert "0.05" in old.stdout


def test_a_name_that_fits_nothing_is_answered_with_the_nearest(auctions: Path) -> None:
    spotctl("prices", "import", str(auctions))
    result = spotctl("prices", "show", "c4.xlarg")
    assert result.exit_code == 2
    assert "did you mean c4.xlarge?" in result.stderr


def test_a_damaged_store_is_said_to_be_one(auctions: Path, home: Path) -> None:
    spotctl("prices", "import", str(auctions))
    (file,) = (home / "prices").glob("cloud=*/region=*/month=*/rows.parquet")
    file.write_bytes(b"PAR1" + bytes(60))
    for verb in (("advise",), ("prices", "status"), ("prices", "show"), ("prices", "plot", "c4.xlarge")):
        result = spotctl(*verb)
        assert result.exit_code == 1, verb
        assert "rows.parquet" in result.stderr
        assert "Move it out of the store" in result.stderr


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.binary(max_size=4), st.integers(0, 40)), min_size=1, max_size=4
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_file_holds_it_is_imported_or_refused(
    tmp_path: Path, edits: list[tuple[int, bytes, int]]
) -> None:
    content = (HEADER + row("a", "c4.xlarge", "2016-06-01", "0.04") * 3).encode()
    for place, new, length in edits:
        content = content[:place] + new + content[place + length :]
    (tmp_path / "odd.csv").write_bytes(content)
    for verb in (("import", "odd.csv"), ("status",), ("show",)):
        result = spotctl("prices", *verb)
        assert result.exit_code in (0, 2), result.stderr
        assert isinstance(result.exception, SystemExit | None)


# ---- history, plot, export ----------------------------------------------------------------------


def test_history_is_the_steps_with_the_one_in_force_at_the_start(auctions: Path) -> None:
    spotctl("prices", "import", str(auctions))
    span = ("--from", "2016-06-02T06:00:00Z", "--to", "2016-06-03")
    found = answer("prices", "history", "c4.xlarge@us-east-1a", *span)
    assert [(step["time"], step["price"]) for step in found["steps"]] == [
        ("2016-06-02T06:00:00Z", "0.040000"),
        ("2016-06-02T12:00:00Z", "0.900000"),
        ("2016-06-02T12:30:00Z", "0.040000"),
    ]
    written = spotctl("prices", "history", "c4.xlarge@us-east-1a", *span, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(written.stdout)))
    assert [row["price_usd_hour"] for row in rows] == ["0.04", "0.9", "0.04"]
    assert "an event stream; last seen" in written.stderr
    assert "warning: stale" in written.stderr


def test_a_history_is_of_one_market(auctions: Path) -> None:
    spotctl("prices", "import", str(auctions))
    result = spotctl("prices", "history", "c4.xlarge")
    assert result.exit_code == 2
    assert "c4.xlarge is sold in 3 zones; name one: c4.xlarge@us-east-1a" in result.stderr
    assert spotctl("prices", "history", "c4.xlarge@us-east-1a", "--from", "noon").exit_code == 2


def test_plots_go_to_the_terminal_and_to_files(auctions: Path, tmp_path: Path) -> None:
    spotctl("prices", "import", str(auctions))
    drawn = spotctl("prices", "plot", "c4.xlarge@us-east-1a")
    assert "c4.xlarge@us-east-1a" in drawn.stdout.splitlines()[0]
    assert any(ord(sign) > 0x2800 for sign in drawn.stdout)
    for ending, begin in ((".svg", "<svg "), (".html", "<!doctype html>")):
        assert spotctl("prices", "plot", "c4.xlarge", "-o", f"x{ending}").exit_code == 0
        assert (tmp_path / f"x{ending}").read_text().startswith(begin)
    assert spotctl("prices", "plot", "c4.xlarge", "-o", "x.png").exit_code == 0
    with Image.open(tmp_path / "x.png") as picture:
        assert (picture.format, picture.width) == ("PNG", 1920)
        assert len(set(picture.convert("RGB").get_flattened_data())) > 3, "curves of three colours"
    assert spotctl("prices", "plot", "c4.xlarge", "-o", "x.gif").exit_code == 2
    assert spotctl("prices", "plot", "c4.xlarge", "--to", "2015-01-01").exit_code == 2
    assert spotctl("prices", "plot").exit_code == 2


def test_png_without_its_package_says_what_to_install(
    auctions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spotctl("prices", "import", str(auctions))
    monkeypatch.delitem(sys.modules, "spotctl.charts.png", raising=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    result = spotctl("prices", "plot", "c4.xlarge", "-o", "x.png")
    assert result.exit_code == 2
    assert "pip install 'spotctl[plot]'" in result.stderr
    assert not (tmp_path / "x.png").exists()


def test_what_is_exported_can_be_imported_elsewhere(
    auctions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spotctl("prices", "import", str(auctions))
    assert spotctl("prices", "export", "--format", "parquet", "-o", "all.parquet").exit_code == 0
    lines = spotctl("prices", "export", "c4.xlarge@us-east-1b").stdout
    assert len(list(csv.DictReader(io.StringIO(lines)))) == 30
    (tmp_path / "all.csv").write_text(spotctl("prices", "export").stdout)
    before = answer("prices", "show")["prices"]
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "elsewhere"))
    first, second = answer("prices", "import", "all.parquet", "all.csv")["files"]
    assert (first["new"], second["new"], second["known"]) == (150, 0, 150)
    after = answer("prices", "show")["prices"]
    for quote in (*before, *after):
        del quote["age_seconds"], quote["doubt"]  # what was in quarantine is not exported
    assert after == before
    assert spotctl("prices", "export", "--format", "parquet").exit_code == 2
    assert spotctl("prices", "export", "--format", "parquet", "-o", "x.csv").exit_code == 2


# ---- advise -------------------------------------------------------------------------------------


def test_advice_ranks_by_expected_cost_and_leaves_out_what_failed_a_check(auctions: Path) -> None:
    spotctl("prices", "import", str(auctions))
    found = answer("advise")
    assert [market["zone"] for market in found["ranked"]] == ["us-east-1a", "us-east-1b"]
    spiking, quiet = found["ranked"]
    assert spiking["beta"] == pytest.approx(1 / 24, rel=0.02)
    assert spiking["beta_low"] < spiking["beta"] < spiking["beta_high"]
    assert (quiet["beta"], quiet["beta_basis"], quiet["rules"]) == (0.0, "price crossings", "aws-2016")
    assert quiet["cost_per_useful_hour"] == f"{0.05 / 4:.6f}"
    assert found["not_ranked"] == [
        {"reason": "its newest row failed a check: absurdly high price", "markets": 1}
    ]
    result = spotctl("advise")
    assert "stale: the prices of 2 of 2 markets" in result.stderr
    assert "not ranked: 1 markets: its newest row failed a check" in result.stderr


def test_advice_without_a_store_is_about_the_bundled_market_and_says_so() -> None:
    result = spotctl("advise", "--cpus", "8+")
    assert result.exit_code == 0
    assert "bundled market, generated, not recorded" in result.stderr
    assert "c4.2xlarge" in result.stdout
    assert "c4.xlarge@" not in result.stdout
    assert all(market["generated"] for market in answer("advise")["ranked"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("--cpus", "many"),
        ("--memory", "-1"),
        ("--gpu", "V100:0"),
        ("--gpu", "V100:x"),
        ("--horizon", "soon"),
        ("--horizon", "30d"),
        ("--clouds", "moon"),
        ("--top", "0"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(arguments: tuple[str, str]) -> None:
    result = spotctl("advise", *arguments)
    assert result.exit_code == 2
    assert arguments[0] in result.stderr


def test_imported_probes_are_counted_and_believed(tmp_path: Path) -> None:
    """Capacity of two in three looks, for a month until an hour ago; then the clock goes on without them."""
    lines = ["timestamp_utc,cloud,region,zone,instance_type,available"]
    lines += [
        f"{days_ago(30 - look / 144)},aws,us-east-1,us-east-1c,c4.xlarge,{int(look * look % 13 > 3)}"
        for look in range(30 * 144 - 6)
    ]
    (tmp_path / "probes.csv").write_text("\n".join([*lines, f"{days_ago(-1)},aws,x,xa,y,1"]) + "\n")
    (tmp_path / "today.csv").write_text(HEADER + row("c", "c4.xlarge", days_ago(0.1), "0.04"))
    done = answer("prices", "import", "probes.csv", "today.csv")["files"]
    assert [(file["new"], file["quarantined"]) for file in done] == [(30 * 144 - 6, 1), (1, 0)]
    status = answer("prices", "status")
    assert (status["probes"], status["lifetimes"], status["quarantined"]) == (30 * 144 - 6, 0, 1)
    assert "4,314 capacity probes" in spotctl("prices", "status").stdout
    (market,) = answer("advise")["ranked"]
    assert (market["beta_basis"], market["beta_stale"]) == ("observed capacity", False)
    assert 0 < market["beta_low"] < market["beta"] < market["beta_high"] < 1
    assert "losses" in market["beta_source"]
    assert "what was seen of the market's capacity" in " ".join(spotctl("advise").stdout.split())


def test_probes_without_prices_are_no_market(tmp_path: Path) -> None:
    lines = [
        "cloud,region,zone,instance_type,begin_utc,end_utc,lost",
        f"aws,us-east-1,us-east-1c,c4.xlarge,{days_ago(2)},{days_ago(1)},1",
    ]
    (tmp_path / "lives.csv").write_text("\n".join(lines))
    assert answer("prices", "import", "lives.csv")["files"][0]["new"] == 1
    shown = spotctl("prices", "status").stdout
    assert "no prices yet" in shown
    assert "1 machine lifetimes" in shown
    assert all(market["generated"] for market in answer("advise")["ranked"])


def test_unknown_beta_is_never_made_up(auctions: Path, tmp_path: Path) -> None:
    """The same type, cheaper, under today's rules: no rate is known."""
    today = tmp_path / "today.csv"
    today.write_text(HEADER + row("c", "c4.xlarge", days_ago(0.1), "0.001"))
    spotctl("prices", "import", str(auctions), str(today))
    last, *stale = answer("advise")["ranked"]
    assert all(market["stale"] for market in stale), "even a known risk comes after it at such a price"
    assert (last["zone"], last["beta"], last["beta_basis"]) == ("us-east-1c", None, "unknown")
    assert (last["bid"], last["stale"]) == (None, False)
