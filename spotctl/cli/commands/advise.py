"""Defines ``advise``: which markets to use, by the expected cost of useful work there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spotctl.cli.commands import options
from spotctl.cli.format import output
from spotctl.errors import UsageError
from spotctl.job.choices import CloudName

if TYPE_CHECKING:
    from spotctl.job.spec import Amount
    from spotctl.prices.advice import Gpu

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)(\+?)")
_LONGEST_S: Final = 7 * 86400


def add_to(app: typer.Typer) -> None:
    """Gives ``app`` the verb of this module."""
    app.command()(advise)


def advise(
    cpus: Annotated[
        str | None, typer.Option(metavar="N[+]", help="Cores per machine: 8 is exactly 8, 8+ at least 8.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:N[+]]", help="GPUs per machine, like V100:1 or A100:8+. Default count: 1+."
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="GIB[+]", help="GiB of memory per machine: 16 or 16+.")
    ] = None,
    horizon: Annotated[
        str, typer.Option(metavar="DURATION", help="Time for which you need a machine, up to 7d.")
    ] = "1h",
    clouds: Annotated[
        list[CloudName] | None, typer.Option("--cloud", "--clouds", help="Only this cloud; repeatable.")
    ] = None,
    regions: Annotated[
        list[str] | None,
        typer.Option("--region", "--regions", metavar="REGION", help="Only this region; repeatable."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="N", help="Number of markets to show.")] = 20,
    form: options.FormatOption = options.OutputFormat.TABLE,
    as_json: options.JsonOption = False,
) -> None:
    """Rank spot markets by the expected cost of useful work.

    Reads the price store, or the bundled market if the store is empty. beta is the probability that a machine
    is evicted within the horizon. It is estimated from prices where bids decide evictions, else from
    observed capacity, else from published rates. Markets without any of these come last.

    \b
    Examples:
      spotctl advise --cpus 8+ --memory 16+ --cloud aws
      spotctl advise --gpu V100:1 --horizon 2h
    """
    seconds = options.parse_duration_option("--horizon", horizon)
    assert seconds is not None
    if seconds > _LONGEST_S:
        raise UsageError(f"--horizon: found {horizon!r}, expected no more than 7d")
    from pricing_data.model.units import Instant
    from spotctl.cli.format import json_lines
    from spotctl.cli.views import advice as adviseview
    from spotctl.job.price_sources import report_errors
    from spotctl.prices import advice, market_table_build
    from spotctl.timesource import wall_clock

    wish = advice.Wish(
        cpus=_parse_amount("--cpus", cpus),
        memory_gib=_parse_amount("--memory", memory),
        gpu=_parse_gpu(gpu),
        clouds=tuple(map(str, clouds or ())),
        regions=tuple(regions or ()),
    )
    with report_errors():
        offered = market_table_build.current_table(seconds)
    answer = advice.advise(offered.table, wish, Instant(int(wall_clock())), top)
    if options.wants_json(form, as_json):
        output.write_data(
            json_lines.to_document(adviseview.advice_document(answer, wish, seconds, offered.label))
        )
    else:
        output.write_note(*adviseview.advice_warnings(answer, offered.label))
        output.show_picture(adviseview.draw_advice(answer, wish, seconds))


def _parse_amount(option: str, text: str | None) -> Amount | None:
    from spotctl.job.spec import Amount

    if text is None:
        return None
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: found {text!r}, expected a number, or a number and +, like 8+")
    return Amount(float(match[1]), bool(match[2]))


def _parse_gpu(text: str | None) -> Gpu | None:
    from spotctl.job.spec import Amount
    from spotctl.prices.advice import Gpu

    if text is None:
        return None
    # "V100" alone means at least one.
    name, colon, count = text.partition(":")
    amount = _parse_amount("--gpu", count) if colon else Amount(1.0, True)
    if amount is None or amount.value < 1:
        raise UsageError(f"--gpu: found {text!r}, expected at least one, like V100:1")
    return Gpu(name.strip(), amount)
