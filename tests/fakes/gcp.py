"""GCP as its own client package describes it.

Routes, requests and replies are the package's: a path that no method has, a query or body field that its
message lacks, or a reply of another type than the method's is an error of the fake's caller. What is in
the cloud is a ``GcpCloud``.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from google.api_core import path_template
from google.protobuf import json_format

from tests.fakes.servers import FakeServer, Reply, Request

if TYPE_CHECKING:  # imported where they are made: that takes seconds
    from google.cloud import billing_v1, compute_v1

_SERVICES = (
    "google.cloud.compute_v1.services.advice",
    "google.cloud.compute_v1.services.machine_types",
    "google.cloud.billing_v1.services.cloud_catalog",
)


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    verb: str
    template: str
    body: str | None
    request: type[Any]
    response: type[Any]


def routes() -> tuple[Route, ...]:
    """Every method of the services, as their REST transports know them."""
    found: list[Route] = []
    for service in _SERVICES:
        base = importlib.import_module(f"{service}.transports.rest_base")
        rest = importlib.import_module(f"{service}.transports.rest")
        (plain,) = (cls for name, cls in vars(base).items() if name.startswith("_Base"))
        (transport,) = (
            cls for name, cls in vars(rest).items() if name.endswith("RestTransport") and name[0] != "_"
        )
        for name, options in inspect.getmembers(plain, lambda cls: hasattr(cls, "_get_http_options")):
            hints = typing.get_type_hints(getattr(transport, name.replace("_Base", "_")).__call__)
            found.extend(
                Route(
                    name.removeprefix("_Base"),
                    option["method"].upper(),
                    option["uri"],
                    option.get("body"),
                    hints["request"],
                    hints["return"],
                )
                for option in options._get_http_options()
            )
    return tuple(found)


@dataclass(slots=True)
class GcpCloud:
    """``types`` by zone; ``skus``; ``histories`` by (zone, type). Whoever has no history is refused."""

    types: Mapping[str, list[compute_v1.MachineType]] = field(default_factory=dict)
    skus: list[billing_v1.Sku] = field(default_factory=list)
    months: Mapping[str, list[billing_v1.Sku]] = field(default_factory=dict)
    """The catalogue in past months, by "2026-10"."""
    histories: Mapping[tuple[str, str], compute_v1.CapacityHistoryResponse] = field(default_factory=dict)
    page_size: int = 7
    """No page is longer, whatever was asked for: as the API may."""
    unreachable: tuple[str, ...] = ()

    def server(self) -> FakeServer:
        known = routes()
        return FakeServer(lambda request: self._answer(known, request))

    def _answer(self, known: tuple[Route, ...], request: Request) -> Reply:
        parts = urlsplit(request.path)
        for route in known:
            if route.verb == request.method and path_template.validate(route.template, parts.path):  # type: ignore[no-untyped-call]
                message = _parsed(route, parts.path, parts.query, request.body)
                reply = self._handlers[route.method](self, message)
                if isinstance(reply, Reply):
                    return reply
                assert type(reply) is route.response, (type(reply), route.response)
                return Reply(body=json_format.MessageToJson(route.response.pb(reply)).encode())
        return _refusal(404, f"no method of the client has {request.method} {parts.path}")

    def _aggregated_list(self, request: Any) -> compute_v1.MachineTypeAggregatedList:
        from google.cloud import compute_v1

        rows = [(zone, found) for zone, listed in self.types.items() for found in listed]
        page, token = self._page(rows, request.page_token, request.max_results)
        items: dict[str, compute_v1.MachineTypesScopedList] = {}
        for zone, found in page:
            scoped = items.setdefault(f"zones/{zone}", compute_v1.MachineTypesScopedList())
            scoped.machine_types.append(found)
        return compute_v1.MachineTypeAggregatedList(
            items=items, next_page_token=token, unreachables=self.unreachable
        )

    def _list_skus(self, request: Any) -> billing_v1.ListSkusResponse:
        from google.cloud import billing_v1

        assert request.parent == "services/6F81-5844-456A"
        assert 0 < request.page_size <= 5000
        skus = self.skus
        if request.start_time:
            assert request.start_time.strftime("%Y-%m") == request.end_time.strftime("%Y-%m") or (
                request.end_time.day == 1 and request.end_time.hour <= 7
            )
            skus = self.months.get(request.start_time.strftime("%Y-%m"), [])
        page, token = self._page(skus, request.page_token, request.page_size)
        return billing_v1.ListSkusResponse(skus=page, next_page_token=token)

    def _capacity_history(self, request: Any) -> compute_v1.CapacityHistoryResponse | Reply:
        body = request.capacity_history_request_resource
        assert body.instance_properties.scheduling.provisioning_model == "SPOT"
        assert set(body.types) == {"PRICE", "PREEMPTION"}
        zone = body.location_policy.location.removeprefix("zones/")
        assert zone.startswith(f"{request.region}-")
        found = self.histories.get((zone, body.instance_properties.machine_type))
        return found or _refusal(400, "capacity history is not available for this machine type")

    def _page(self, rows: list[Any], token: str, wanted: int) -> tuple[list[Any], str]:
        begin, size = int(token or 0), min(self.page_size, wanted or self.page_size)
        return rows[begin : begin + size], str(begin + size) if begin + size < len(rows) else ""

    _handlers: typing.ClassVar[Mapping[str, Callable[..., Any]]] = {
        "AggregatedList": _aggregated_list,
        "ListSkus": _list_skus,
        "CapacityHistory": _capacity_history,
    }


def refused(status: int, message: str, reason: str = "", headers: Mapping[str, str] | None = None) -> Reply:
    """An error as Google's APIs word it."""
    errors = [{"message": message, "domain": "usageLimits", "reason": reason}] if reason else []
    error = {"code": status, "message": message, "errors": errors}
    return Reply(status, json.dumps({"error": error}).encode(), headers or {})


def _refusal(status: int, message: str) -> Reply:
    return refused(status, message)


def _parsed(route: Route, path: str, query: str, body: bytes) -> Any:
    """The request's message; fields that it does not have are refused by the parser."""
    fields = dict(parse_qsl(query))
    assert fields.pop("$alt", "json;enum-encoding=int") == "json;enum-encoding=int"
    message = route.request()
    raw = route.request.pb(message)
    json_format.ParseDict(_nested(fields), raw)
    names = re.findall(r"\{(\w+)", route.template)
    pattern = re.sub(r"\{(\w+)=([^}]*)\}", r"{\1}", route.template).replace("{parent}", "(services/[^/]+)")
    match = re.fullmatch(re.sub(r"\{\w+\}", "([^/]+)", pattern), path)
    assert match is not None
    for name, value in zip(names, match.groups(), strict=True):
        setattr(raw, name, value)
    if route.body:
        json_format.Parse(body, getattr(raw, route.body))
    return message


def _nested(fields: Mapping[str, str]) -> dict[str, Any]:
    """{"a.b": "1"} as {"a": {"b": "1"}}."""
    whole: dict[str, Any] = {}
    for name, value in fields.items():
        *above, last = name.split(".")
        place = whole
        for step in above:
            place = place.setdefault(step, {})
        place[last] = {"true": True, "false": False}.get(value, value)
    return whole
