"""Reads the Spot Instance Advisor's public file: eviction rates by region and type. No account, no SDK.

It gives, for the month behind it, the band in which the share of interrupted instances fell: of a whole
region, not of a zone. Does not turn a band into one figure.
"""

from __future__ import annotations

import email.utils
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.client import HTTPException
from typing import Any, Final

from pricing_data.errors import FeedBroken, FeedError, FeedThrottled, FeedUnreachable
from pricing_data.feeds.base import FeedPart, Page, PartKind
from pricing_data.feeds.quarantine import PartReading, describe_flaw, reading_a_row
from pricing_data.formats.batches import Rate, RateBatch
from pricing_data.model.market import Market
from pricing_data.model.units import HOUR_S, Instant, Seconds

SOURCE: Final = "aws Spot Advisor"
ADDRESS: Final = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
MONTH_S: Final = Seconds(30.0 * 24 * HOUR_S)
_TIMEOUT_S: Final = 60.0
_LABEL: Final = re.compile(r"(?:<(?P<below>\d+)|>(?P<above>\d+)|(?P<low>\d+)-(?P<high>\d+))%")
_Band = tuple[float, float]
_PART: Final = FeedPart("aws", PartKind.RATES, "all regions", SOURCE)


class AwsAdvisorFeed:
    """Fetches the advisor's file. ``address``: where it is; its host may be a mirror."""

    name = "aws advisor"
    cloud = "aws"

    def __init__(self, now: Callable[[], Instant], address: str = ADDRESS) -> None:
        self._now = now
        self._address = address

    def list_parts(self) -> tuple[FeedPart, ...]:
        """Returns one part: the file."""
        return (_PART,)

    def fetch(self, part: FeedPart, since: Instant | None) -> Iterator[Page]:
        """Yields the file as it is today, for the month until it was written."""
        content, written = self._download_file()
        observed, reading = self._now(), PartReading(part)
        try:
            rates = tuple(_read_rates(json.loads(content), written or observed, observed, reading))
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            found = f"a file that is not the advisor's: {describe_flaw(error)}"[:300]
            raise FeedBroken(self._address, found, "Check the address, or fetch again later") from error
        reading.understood = len(rates)
        batches = (RateBatch(SOURCE, rates),) if rates else ()
        yield Page(len(rates), (*batches, *reading.take_batches(observed)), left_out=reading.left_out)
        reading.check_understood()

    def _download_file(self) -> tuple[bytes, Instant | None]:
        """Returns its content, and when it was written where the server says so."""
        try:
            with urllib.request.urlopen(self._address, timeout=_TIMEOUT_S) as answer:
                return answer.read(), _parse_modified(answer.headers["Last-Modified"])
        except urllib.error.HTTPError as error:
            # An HTTPError holds its connection open.
            error.close()
            raise self._http_error(error) from error
        except (OSError, HTTPException, ValueError) as error:
            said = str(error) or type(error).__name__
            advice = "Check the connection and the address, then fetch again"
            raise FeedUnreachable(self._address, said, advice) from error

    def _http_error(self, error: urllib.error.HTTPError) -> FeedError:
        said = f"HTTP {error.code} {error.reason}"
        if error.code == 429:
            return FeedThrottled(self._address, said, "Fetch again later")
        # The server's fault, which may pass; other codes will not.
        if error.code >= 500:
            return FeedUnreachable(self._address, said, "Fetch again later")
        return FeedBroken(self._address, said, "Check the address")


def _parse_modified(text: str | None) -> Instant | None:
    if text is None:
        return None
    try:
        return Instant(int(email.utils.parsedate_to_datetime(text).timestamp()))
    except ValueError:
        return None  # then it counts as written when it was read


def _read_rates(
    content: dict[str, Any], end: Instant, observed: Instant, reading: PartReading
) -> Iterator[Rate]:
    bands = {entry["index"]: _parse_band(entry["label"]) for entry in content["ranges"]}
    begin = Instant(end - int(MONTH_S))
    for region, systems in content["spot_advisor"].items():
        for name, found in systems.get("Linux", {}).items():
            band = reading.read_row((region, name, found), partial(_band_of, bands))
            if band is not None:
                yield Rate(Market("aws", region, region, name), begin, end, *band, MONTH_S, observed)


def _band_of(bands: Mapping[int, _Band], row: tuple[str, str, dict[str, Any]]) -> _Band:
    with reading_a_row():
        return bands[row[2]["r"]]


def _parse_band(label: str) -> _Band:
    """Returns the ends of "<5%", "5-10%" or ">20%", as fractions."""
    match = _LABEL.fullmatch(label)
    if match is None:
        raise ValueError(f"the band {label!r} is not written like <5%, 5-10% or >20%")
    low = match["above"] or match["low"] or "0"
    high = match["below"] or match["high"] or "100"
    return int(low) / 100, int(high) / 100
