"""The command as scripts see it: its verbs and their help, and wrong use, which is exit 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.cli.app import main
from tests.spotctl.cli.commandline import JOB, spotctl

VERBS = (
    "launch",
    "plan",
    "status",
    "logs",
    "cancel",
    "down",
    "wait",
    "gc",
    "prune",
    "report",
    "advise",
    "backtest",
    "init",
    "schema",
    "doctor",
    "version",
    "completion",
    "prices",
    "queue",
)
HEAVY = ["numpy", "scipy", "pandas", "zmq", "yaml", "rich", "sqlite3", "asyncio", "boto3", "google.cloud"]
HEAVY += ["azure", "ray", "duckdb"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_has_examples_of_that_verb_before_its_options(verb: str) -> None:
    result = spotctl(verb, "--help")
    assert result.exit_code == 0
    examples = result.stdout.partition("\n\nOptions:")[0].partition("  Examples:\n")[2].splitlines()
    assert any(f"spotctl {verb}" in line for line in examples)
    assert all(len(line) <= 88 for line in examples), "an example that wraps cannot be copied"


def test_the_verbs_are_those_that_work_in_this_version() -> None:
    listed = spotctl("--help").stdout.partition("Commands:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines()] == list(VERBS)
    assert "..." not in listed, "each verb's first sentence fits its line"


def test_ctrl_c_while_it_is_being_loaded_is_130() -> None:
    code = (
        "import sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Pressed())\n"
        "from spotctl.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "spotctl: interrupted; nothing was started\n"


def test_ctrl_c_that_was_answered_leaves_the_exit_code_alone(tmp_path: Path) -> None:
    """Under ``python -m`` Python kills itself with SIGINT where that came in code that is run as text."""
    (tmp_path / "answering.py").write_text(
        "import sys\n"
        "from spotctl.cli.app import main\n"
        "def command(prog_name):\n"
        "    try:\n"
        "        exec('raise KeyboardInterrupt')\n"
        "    except KeyboardInterrupt:\n"
        "        sys.exit(130)\n"
        "main(command)\n"
    )
    program = [sys.executable, "-m", "answering"]
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root}
    assert subprocess.run(program, cwd=tmp_path, env=environment, check=False).returncode == 130


def test_help_loads_nothing_heavy() -> None:
    """No numpy, sockets, YAML, tables; no SDK, pandas or scipy ever."""
    code = (
        "import sys\nfrom spotctl.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "launch", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: spotctl launch")
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lunch"], "No such command 'lunch'"),
        (["launch"], "Missing argument"),
        (["launch", "missing.yaml"], "spotctl: missing.yaml: cannot be read: No such file"),
        (["launch", "bad.yaml", "--yes"], "bad.yaml:1:1: nmae: unknown key"),
        (["launch", "nightly.yaml"], "there is no terminal to confirm at; add --yes"),
        (["launch", "nightly.yaml", "--cloud", "aws"], "Invalid value for '--cloud'"),
        (["launch", "nightly.yaml", "--cloud", "asw"], "Invalid value for '--cloud'"),
        (["launch", "nightly.yaml", "--deadline", "60"], "--deadline: '60' is not a duration"),
        (["launch", "nightly.yaml", "--deadline", "0s"], "--deadline: found '0s'"),
        (["launch", "nightly.yaml", "--budget", "cheap"], "--budget: found 'cheap'"),
        (["launch", "nightly.yaml", "--name", "../up"], "--name: found '../up'"),
        (["launch", "nightly.yaml", "--env", "A"], "--env: found 'A', expected NAME=VALUE"),
        (["launch", "nightly.yaml", "--speed", "0.5"], "Invalid value for '--speed'"),
        (["launch", "nightly.yaml", "--speed", "inf"], "--speed: found inf"),
        (["launch", "nightly.yaml", "--trace-start", "noon", "--yes"], "--trace-start: 'noon' is not a time"),
        (["launch", "nightly.yaml", "--trace", "none.csv", "--yes"], "none.csv"),
        (["launch", "nightly.yaml", "--rules", "mine", "--yes"], "--rules mine: expected one of aws-2016"),
        (
            ["plan", "nightly.yaml", "--trace-market", "c9.huge"],
            "--trace-market c9.huge: bundled market (generated) has only c4.2xlarge@us-east-1a, ",
        ),
        (["status", "nightli"], "there is no job 'nightli'"),
        (["down"], "expected the name of a job, or --all"),
        (["report", "--since", "monday"], "--since: 'monday' is not a time"),
        (["report", "--by", "hour"], "Invalid value for '--by'"),
        (["completion", "tcsh"], "Invalid value for"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_exit_2_with_one_message_and_nothing_written(
    home: Path, arguments: list[str], said: str
) -> None:
    Path("bad.yaml").write_text(f"nmae: x\n{JOB}")
    result = spotctl(*arguments)
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert not home.exists()


@pytest.mark.usefixtures("home")
def test_all_problems_of_a_file_are_shown_and_none_twice() -> None:
    Path("bad.yaml").write_text(JOB.replace("24", "many").replace("ratings", "rating"))
    lines = spotctl("plan", "bad.yaml").stderr.splitlines()
    assert [line.removeprefix("spotctl: ").split(": ")[1] for line in lines] == ["data", "stop.clocks"]


@pytest.mark.parametrize("verb", ["plan", "launch", "backtest"])
def test_what_no_market_has_is_said_with_its_line(home: Path, verb: str) -> None:
    Path("odd.yaml").write_text(JOB.replace("c4.xlarge", "c9.huge"))
    refused = spotctl(verb, "odd.yaml", *(["--yes"] if verb == "launch" else []))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("spotctl: odd.yaml:6:3: resources.spot: no market of ")
    assert not (home / "jobs").exists()


@pytest.mark.parametrize("limit", [("--deadline", "5m"), ("--budget", "0.01")])
def test_what_cannot_be_met_is_exit_6_before_anything_starts(home: Path, limit: tuple[str, str]) -> None:
    result = spotctl("launch", "nightly.yaml", "--yes", *limit)
    assert result.exit_code == 6
    assert "nothing was started" in result.stderr
    assert not home.exists()


@pytest.mark.parametrize(("debug", "traceback"), [("", False), ("1", True)])
def test_a_bug_is_one_line_unless_debugging(
    debug: str, traceback: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(prog_name: str) -> None:
        raise KeyError(prog_name)

    monkeypatch.setenv("SPOTCTL_DEBUG", debug)
    with pytest.raises(SystemExit) as ended:
        main(broken)
    assert ended.value.code == 1
    shown = capsys.readouterr().err
    assert "a bug in spotctl: KeyError: 'spotctl'" in shown
    assert ("Traceback" in shown) is traceback


def test_completion_prints_a_script() -> None:
    result = spotctl("completion", "bash")
    assert result.exit_code == 0
    assert "complete -o default -F" in result.stdout
