"""Azure as its own client packages describe it, and the public price list as its documentation does.

Requests of Resource Graph and replies of both ARM services pass through the SDK's models: a field that a
model lacks is an error of the fake's caller. Queries are not run: their table and regions are looked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from azure.mgmt.compute import models as compute
from azure.mgmt.resourcegraph import models as graph

from tests.fakes.servers import FakeServer, Reply, Request

RESOURCE_GRAPH = "/providers/Microsoft.ResourceGraph/resources"
RETAIL = "/api/retail/prices"
_CLAUSE = re.compile(r"(\w+) eq '([^']*)'|contains\((\w+), *'([^']*)'\)")


@dataclass(slots=True)
class AzureCloud:
    """``retail``: the price list's items; ``prices`` and ``rates``: rows of SpotResources."""

    retail: list[dict[str, Any]] = field(default_factory=list)
    prices: list[dict[str, Any]] = field(default_factory=list)
    rates: list[dict[str, Any]] = field(default_factory=list)
    sizes: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    """ResourceSkus by subscription; others are refused."""
    page_size: int = 5
    quota: Mapping[str, str] = field(default_factory=dict)
    """Headers of Resource Graph's answers."""
    address: str = ""

    def server(self) -> FakeServer:
        return FakeServer(self._answer)

    def _answer(self, request: Request) -> Reply:
        parts = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        base = f"http://{request.headers['Host']}"
        if (request.method, parts.path) == ("GET", RETAIL):
            return self._retail(base, query)
        if (request.method, parts.path) == ("POST", RESOURCE_GRAPH):
            assert query == {"api-version": "2021-03-01"}
            return self._graph(json.loads(request.body))
        match = re.fullmatch(r"/subscriptions/([^/]+)/providers/Microsoft.Compute/skus", parts.path)
        if match is not None and request.method == "GET":
            return self._skus(base, match[1], query)
        return refused(404, "NotFound", f"nothing answers {request.method} {parts.path}")

    def _retail(self, base: str, query: Mapping[str, str]) -> Reply:
        assert query["api-version"] == "2023-01-01-preview"
        items = [item for item in self.retail if _matches(item, query["$filter"])]
        begin = int(query.get("$skip", "0"))
        page = items[begin : begin + self.page_size]
        link = None
        if begin + self.page_size < len(items):
            fields = "&".join(f"{name}={_quoted(value)}" for name, value in query.items() if name != "$skip")
            link = f"{base}{RETAIL}?{fields}&$skip={begin + self.page_size}"
        answer = {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": page,
            "NextPageLink": link,
            "Count": len(page),
        }
        return Reply(body=json.dumps(answer).encode())

    def _graph(self, body: Mapping[str, Any]) -> Reply:
        _known(body, graph.QueryRequest)
        _known(body.get("options", {}), graph.QueryRequestOptions)
        wanted = graph.QueryRequest.from_dict(body)
        rows = self._table(wanted.query)
        assert wanted.options is not None
        begin = int(wanted.options.skip_token or 0)
        size = min(self.page_size, wanted.options.top or 100)
        page = rows[begin : begin + size]
        more = begin + size < len(rows)
        answer = graph.QueryResponse(
            total_records=len(rows),
            count=len(page),
            result_truncated="false",
            data=page,  # type: ignore[arg-type]
            skip_token=str(begin + size) if more else None,
            facets=[],
        )
        return Reply(body=json.dumps(answer.serialize()).encode(), headers=self.quota)

    def _table(self, query: str) -> list[dict[str, Any]]:
        if query.startswith("ResourceContainers"):
            return [{"subscriptionId": name} for name in sorted(self.sizes)][:1]
        assert query.startswith("SpotResources")
        rows = self.prices if "skuspotpricehistory/ostype/location" in query else self.rates
        for column, name in (("location", "location"), ("sku.name", "skuName")):
            match = re.search(rf"where {column} in~ \(([^)]*)\)", query)
            if match is not None:
                named = {text.strip(" '").lower() for text in match[1].split(",")}
                rows = [row for row in rows if row[name].lower() in named]
        return rows

    def _skus(self, base: str, subscription: str, query: Mapping[str, str]) -> Reply:
        if subscription not in self.sizes:
            return refused(403, "AuthorizationFailed", f"no access to {subscription}")
        rows = self.sizes[subscription]
        if "$filter" in query:
            region = query["$filter"].split("'")[1]
            rows = [row for row in rows if region in row["locations"]]
        begin = int(query.get("$skiptoken", "0"))
        page = rows[begin : begin + self.page_size]
        for row in page:
            assert set(row) <= _rest_names(compute.ResourceSku), row
        answer: dict[str, Any] = {"value": [compute.ResourceSku(row).as_dict() for row in page]}
        if begin + self.page_size < len(rows):
            path = f"/subscriptions/{subscription}/providers/Microsoft.Compute/skus"
            fields = "".join(f"&{name}={_quoted(query[name])}" for name in ("$filter",) if name in query)
            following = f"api-version=2021-07-01{fields}&$skiptoken={begin + self.page_size}"
            answer["nextLink"] = f"{base}{path}?{following}"
        return Reply(body=json.dumps(answer).encode())


def refused(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    """An error as ARM words it."""
    error = {"error": {"code": code, "message": message}}
    return Reply(status, json.dumps(error).encode(), headers or {})


def _matches(item: Mapping[str, Any], clauses: str) -> bool:
    """The subset of OData that is used here. Values are compared as the API does since 2023: by case."""
    terms = clauses.split(" and ")
    found = [_CLAUSE.fullmatch(term) for term in terms]
    assert all(found), clauses
    for term in clauses.split(" and "):
        match = _CLAUSE.fullmatch(term)
        assert match is not None, clauses
        equal, wanted, containing, part = match.groups()
        if equal and item.get("type" if equal == "priceType" else equal) != wanted:
            return False
        if containing and part not in item.get(containing, ""):
            return False
    return True


def _known(body: Mapping[str, Any], model: Any) -> None:
    names = {entry["key"] for entry in model._attribute_map.values()}
    assert set(body) <= names, set(body) - names


def _rest_names(model: Any) -> set[str]:
    model({})
    return {entry._rest_name for entry in model._attr_to_rest_field.values()}


def _quoted(text: str) -> str:
    return text.replace(" ", "%20").replace("'", "%27")
