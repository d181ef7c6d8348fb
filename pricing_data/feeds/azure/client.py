"""Calls the Azure services that need an account, one question and one answer at a time.

Rule 1: every error is one of ``pricing_data.errors``. Rule 2: the SDK's own retries are off, ``Retries``
decides. Rule 3: Resource Graph says with every answer how many questions are left; where none is, the next
one waits until the quota is renewed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pricing_data.errors import (
    FeedBroken,
    FeedCredentialsExpired,
    FeedError,
    FeedThrottled,
    FeedUnavailable,
    FeedUnreachable,
    RegionRefused,
)
from pricing_data.feeds.azure.rows import Size
from pricing_data.feeds.quarantine import short_text

_ROWS_A_PAGE: Final = 1000
_LOG_IN: Final = "Log in with: az login"
_RESETS: Final = "x-ms-user-quota-resets-after"
_REMAINING: Final = "x-ms-user-quota-remaining"
_LATER: Final = "Fetch again later"


@dataclass(frozen=True, slots=True)
class GraphPage:
    """Holds one answer of Resource Graph."""

    rows: tuple[Mapping[str, Any], ...]
    token: str
    """Token of the next page; "" at the end."""
    total: int
    truncated: bool
    """Whether Azure gave up collecting, page token or not."""
    wait_s: float
    """Seconds until the next question is allowed."""


class AzureClient:
    """Calls Azure; close it after use.

    ``policy`` replaces the SDK's authentication, which insists on TLS; tests have none.
    """

    def __init__(self, credentials: Any, endpoint: str | None, policy: Any) -> None:
        try:
            from azure.mgmt.compute import ComputeManagementClient
            from azure.mgmt.resourcegraph import ResourceGraphClient
        except ImportError as error:
            advice = "Install it with: pip install 'spotctl[azure]'"
            raise FeedUnavailable("azure", f"the SDK is not installed ({error.name})", advice) from error
        # retry_total 0: waiting is in one place, ``Retries``.
        options: dict[str, Any] = {"retry_total": 0, "base_url": endpoint}
        if policy is not None:
            options["authentication_policy"] = policy
        with _translating_errors("azure"):
            self._credentials = credentials or _from_environment()
            self._graph = ResourceGraphClient(self._credentials, **options)
        self._compute: Callable[[str], Any] = lambda subscription: ComputeManagementClient(
            self._credentials, subscription, **options
        )

    def close(self) -> None:
        """Closes its connections."""
        self._graph.close()

    def query_graph(self, where: str, kusto: str, subscriptions: tuple[str, ...], token: str) -> GraphPage:
        """Returns one page of a Resource Graph query.

        Empty ``subscriptions`` query the whole tenant.
        """
        from azure.mgmt.resourcegraph import models

        options = models.QueryRequestOptions(
            top=_ROWS_A_PAGE, skip_token=token or None, result_format="objectArray"
        )
        request = models.QueryRequest(query=kusto, subscriptions=list(subscriptions) or None, options=options)
        headers: dict[str, str] = {}

        def keep_headers(response: Any, answer: Any, _: Any) -> Any:
            headers.update({name.lower(): text for name, text in response.http_response.headers.items()})
            return answer

        with _translating_errors(where):
            found = self._graph.resources(request, cls=keep_headers)
            rows: Any = found.data
            total = found.total_records
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise FeedBroken(where, f"an answer without a list of rows: {short_text(rows)}", _LATER)
        # Only where no question is left; otherwise the next may come at once.
        wait_s = _quota_wait_s(headers) or 0.0 if headers.get(_REMAINING) == "0" else 0.0
        truncated = str(found.result_truncated).lower() == "true"
        return GraphPage(tuple(rows), found.skip_token or "", int(total or 0), truncated, wait_s)

    def list_sizes(self, subscription: str, region: str | None, link: str) -> tuple[list[Size], int, str]:
        """Returns one page of VM sizes, the number of SKUs of all kinds it listed, and the next link."""
        where = f"azure VM sizes of {subscription}"
        wanted = f"location eq '{region}'" if region else None
        with _translating_errors(where):
            with self._compute(subscription) as compute:
                pages = compute.resource_skus.list(filter=wanted).by_page(link or None)
                skus = list(next(pages))
            sizes = [
                Size(sku.name, {one.name: one.value for one in sku.capabilities or ()})
                for sku in skus
                if sku.resource_type == "virtualMachines" and sku.name
            ]
        return sizes, len(skus), pages.continuation_token or ""


def _from_environment() -> Any:
    from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential(exclude_interactive_browser_credential=True)


def _quota_wait_s(headers: Mapping[str, str]) -> float | None:
    """Returns "00:00:05" in seconds; None where the header is missing, or is no such time."""
    match = re.fullmatch(r"(\d+):(\d\d):(\d\d)(?:\.\d+)?", headers.get(_RESETS, ""))
    if match is None:
        return None
    return float(int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3]))


@contextmanager
def _translating_errors(where: str) -> Iterator[None]:
    """Turns SDK errors into ours. An error of the parsers means that the answer is malformed."""
    from azure.core import exceptions

    try:
        yield
    except FeedError:
        raise
    except exceptions.IncompleteReadError as error:
        raise FeedUnreachable(where, "no whole answer (IncompleteReadError)", _LATER) from error
    except exceptions.DecodeError as error:
        raise FeedBroken(where, f"an answer that cannot be read ({str(error)[:200]})", _LATER) from error
    except exceptions.HttpResponseError as error:
        raise _refusal_error(where, error) from error
    except (exceptions.ServiceRequestError, exceptions.ServiceResponseError) as error:
        found = f"no whole answer ({type(error).__name__}: {str(error)[:100]})"
        raise FeedUnreachable(where, found, "Check the connection and fetch again") from error
    except (exceptions.AzureError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        found = f"an answer that cannot be read ({type(error).__name__}: {str(error)[:200]})"
        raise FeedBroken(where, found, "Update the SDK, or fetch again later") from error


def _refusal_error(where: str, error: Any) -> FeedError:
    """Chooses the error for an answer that says no."""
    status, response = error.status_code, error.response
    if status is None:  # no question was sent: every way to log in was tried
        tried = str(error.message).partition("\n")[0][:200]
        return FeedUnavailable(where, f"no credentials were found ({tried})", _LOG_IN)
    said = f"HTTP {status}: {str(error.message)[:200]}"
    if status == 429:
        headers = {name.lower(): text for name, text in response.headers.items()}
        asked = headers.get("retry-after", "")
        wait_s = float(asked) if asked.isdigit() else _quota_wait_s(headers)
        return FeedThrottled(where, said, _LATER, wait_s)
    if status == 401:
        return FeedCredentialsExpired(where, said, _LOG_IN)
    if status == 403:
        return RegionRefused(where, said, "Ask for the Reader role on the subscription, or leave it out")
    if status >= 500 or status == 408:
        return FeedUnreachable(where, said, _LATER)
    return FeedBroken(where, said, "Update the SDK; report it if that does not help")
