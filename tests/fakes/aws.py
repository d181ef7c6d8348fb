"""AWS on this machine: moto's server, with a price history that was recorded and trouble on order.

moto reads the requests and writes the answers from AWS's own service model. Its own price history is one
invented row per zone, so that handler is replaced by one that answers as AWS does: newest first, the price
in force at the start included, in pages, behind opaque tokens. The Price List, which moto lacks, is
answered from a list of products.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import InstanceType, InstanceTypeBackend
from moto.ec2.responses.spot_instances import SpotInstances
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from pricing_data.model.units import Instant, format_instant, parse_instant

Row = tuple[str, str, str, str]
"""Time, zone, instance type, price: as the record has them."""


END: Final = parse_instant("2021-05-10")
"""After the last row of the record."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong with one call: an AWS error code, or half an answer and then silence."""

    code: str = ""
    dropped: bool = False


class Trace:
    """One region's recorded rows, answered for as DescribeSpotPriceHistory does."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, reverse=True)
        self._times = np.array([parse_instant(row[0]) for row in self.rows], np.int64)

    def between(self, start: int, end: int) -> Sequence[Row]:
        """Newest first: the rows in [start, end], and for each market the one in force at ``start``."""
        newest = int(np.searchsorted(-self._times, -end, side="left"))
        oldest = int(np.searchsorted(-self._times, -start, side="right"))
        inside = self.rows[newest:oldest]
        at_start = {
            row[1:3] for row, at in zip(inside, self._times[newest:oldest], strict=True) if at == start
        }
        in_force: dict[tuple[str, ...], Row] = {}
        for row in self.rows[oldest:]:
            if row[1:3] not in at_start:
                in_force.setdefault(row[1:3], row)
        return [*inside, *in_force.values()]


@dataclass
class Cloud:
    """What the server answers from; tests read and change it between calls."""

    address: str = ""
    traces: dict[str, Trace] = field(default_factory=dict)
    products: dict[str, list[str]] = field(default_factory=dict)
    """By region: the Price List's items."""
    types: Sequence[str] | None = None
    """Of DescribeInstanceTypes; None for all that moto knows, which it takes a second or two to write."""
    trouble: defaultdict[str, deque[Trouble | None]] = field(default_factory=lambda: defaultdict(deque))
    """By region: what happens to its next calls; None lets one through."""
    always: dict[str, Trouble] = field(default_factory=dict)
    """By region: what happens to every call that nothing else is said of."""
    page_size: Callable[[int], int] | None = None
    """Number of the page -> rows given, where it is not as many as were asked for."""
    writes: Callable[[Row], dict[str, str]] | None = None
    """How a row stands in an answer, where that is not as AWS writes it."""
    same_token: bool = False
    """Every page names the same next one."""
    latency_s: float = 0.0
    """Before every answer."""
    remembers: bool = False
    """Whether the same request gets the same bytes, without moto: for measuring clients."""
    now: Instant = END
    """What the feed takes for now."""
    calls: list[tuple[str, Instant, int]] = field(default_factory=list)
    """(region, start, rows answered) of every page."""

    def history(self, request: SpotInstances) -> ActionResult:
        """DescribeSpotPriceHistory."""
        region = request.region
        waiting = self.trouble[region]
        wrong = waiting.popleft() if waiting else self.always.get(region)
        if wrong is not None and wrong.code:
            raise EC2ClientError(wrong.code, f"made up for {region}")
        if request._get_param("ProductDescriptions") != ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]:
            raise EC2ClientError("InvalidParameterValue", "only Linux is recorded here")
        start, end, begin, page = self._place(request)
        asked = int(request._get_param("MaxResults", 1000))
        found = _narrowed(request, self.traces[region].between(start, end))
        until = begin + (asked if self.page_size is None else self.page_size(page))
        rows = found[begin:until]
        self.calls.append((region, start, len(rows)))
        answer: dict[str, Any] = {"SpotPriceHistory": list(map(self.writes or as_aws, rows))}
        if until < len(found):
            answer["NextToken"] = _token(start, end, *((0, 0) if self.same_token else (until, page + 1)))
        if wrong is not None and wrong.dropped:
            _drop.pending = True
        return ActionResult(answer)

    def _place(self, request: SpotInstances) -> tuple[Instant, Instant, int, int]:
        """(start, end, rows answered before, pages answered before)."""
        token = request._get_param("NextToken")
        if token:
            start, end, begin, page = json.loads(base64.b64decode(token))
            return start, end, begin, page
        start, end = (parse_instant(str(request._get_param(name))) for name in ("StartTime", "EndTime"))
        return start, end, 0, 0

    def price_list(self, body: bytes) -> bytes:
        """GetProducts, by region code; ten to a page."""
        asked = json.loads(body)
        region = next(one["Value"] for one in asked["Filters"] if one["Field"] == "regionCode")
        listed, begin = self.products.get(region, []), int(asked.get("NextToken", "0"))
        answer: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": listed[begin : begin + 10]}
        if begin + 10 < len(listed):
            answer["NextToken"] = str(begin + 10)
        return json.dumps(answer).encode()


def _narrowed(request: SpotInstances, rows: Sequence[Row]) -> Sequence[Row]:
    """As InstanceTypes and the filter of zones have it."""
    types = request._get_param("InstanceTypes", [])
    for asked in request._get_param("Filters", []):
        if asked["Name"] != "availability-zone":
            raise EC2ClientError("InvalidParameterValue", f"the filter {asked['Name']} is not known here")
        rows = [row for row in rows if row[1] in asked["Values"]]
    return [row for row in rows if not types or row[2] in types]


_drop = threading.local()


def _token(*place: object) -> str:
    return base64.b64encode(json.dumps(place).encode()).decode()


def as_aws(row: Row) -> dict[str, str]:
    """A row as it stands in AWS's answers."""
    at, zone, name, price = row
    return {
        "AvailabilityZone": zone,
        "InstanceType": name,
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": f"{float(price):.6f}",
        "Timestamp": f"{format_instant(parse_instant(at))[:-1]}.000Z",
    }


class _Front:
    """Before moto: answers for the Price List, and cuts answers short."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._remembered: dict[tuple[str, bytes], bytes] = {}
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.get("HTTP_X_AMZ_TARGET", "").startswith("AWSPriceListService"):
            body = self._cloud.price_list(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            start_response("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
            return [body]
        time.sleep(self._cloud.latency_s)
        if self._cloud.remembers:
            return [self._from_memory(environ, start_response)]
        _drop.pending = False
        whole = b"".join(self._moto(environ, start_response))
        return [whole[: len(whole) // 2] if _drop.pending else whole]

    def _from_memory(self, environ: dict[str, Any], start_response: Any) -> bytes:
        asked = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        region = environ["HTTP_AUTHORIZATION"].split("/")[2]
        known = self._remembered.get((region, asked))
        if known is None:
            environ["wsgi.input"] = io.BytesIO(asked)
            known = b"".join(self._moto(environ, start_response))
            self._remembered[region, asked] = known
        else:
            start_response("200 OK", [("Content-Type", "text/xml"), ("Content-Length", str(len(known)))])
        return known


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Tests count requests themselves."""


@contextmanager
def serving(cloud: Cloud) -> Iterator[Cloud]:
    """``cloud`` on a free port of 127.0.0.1, as long as the block lasts."""
    server = make_server("127.0.0.1", 0, _Front(cloud), threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    cloud.address = f"http://127.0.0.1:{server.server_port}"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SpotInstances, "describe_spot_price_history", lambda request: cloud.history(request))
        if cloud.types is not None:
            patched.setattr(InstanceTypeBackend, "instance_types", list(map(InstanceType, cloud.types)))
        thread.start()
        try:
            yield cloud
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def recorded_2021(folder: Path, only: Callable[[str], bool]) -> list[Row]:
    """The recorded rows of us-east-1 in spring 2021 whose instance type is wanted."""
    path = folder / "aws-spot-2020-2021" / "spot_prices_us-east-1_2021.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [
            (row["timestamp_utc"], row["zone"], row["instance_type"], row["price_usd_hour"])
            for row in csv.DictReader(file)
            if only(row["instance_type"])
        ]
