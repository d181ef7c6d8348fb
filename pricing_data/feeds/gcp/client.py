"""Calls the three GCP services that prices come from, one question and one answer at a time.

Rule 1: every answer is plain values; no message type of the SDK gets out. Rule 2: every error is one of
``pricing_data.errors``. The SDK's own retries are off: ``Retries`` decides, so that waiting is in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pricing_data.errors import (
    FeedBroken,
    FeedCredentialsExpired,
    FeedCredentialsRejected,
    FeedError,
    FeedThrottled,
    FeedUnavailable,
    FeedUnreachable,
    RegionRefused,
)
from pricing_data.feeds.gcp import answers
from pricing_data.feeds.gcp.answers import History
from pricing_data.model.units import Instant

_COMPUTE_ENGINE: Final = "services/6F81-5844-456A"
_SKUS_A_PAGE: Final = 5000
_TYPES_A_PAGE: Final = 500
_TIMEOUT_S: Final = 60.0
_LOG_IN: Final = "Log in with: gcloud auth application-default login"
_QUOTA_REASONS: Final = ("RATE_LIMIT_EXCEEDED", "rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Says where the services are. Plain HTTP on this machine serves tests."""

    compute: str = "https://compute.googleapis.com"
    billing: str = "https://cloudbilling.googleapis.com"


@dataclass(frozen=True, slots=True)
class Month:
    """Names a calendar month, kept an hour clear of its borders in Pacific time (Google's months)."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> Month:
        year, _, month = text.partition("-")
        return cls(int(year), int(month))

    def __str__(self) -> str:
        return f"{self.year}-{self.month:02d}"

    @property
    def previous_month(self) -> Month:
        return Month(self.year - 1, 12) if self.month == 1 else Month(self.year, self.month - 1)

    @property
    def begin(self) -> datetime:
        return datetime(self.year, self.month, 1, 8, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return datetime(self.year + self.month // 12, self.month % 12 + 1, 1, 7, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Listing:
    """Holds one page: its rows, the answer's row count, and the token of the next page ("" at the end)."""

    rows: tuple[Any, ...]
    answered: int
    token: str
    left_out: tuple[str, ...] = ()
    """Parts that the service itself said it could not include."""
    unread: tuple[str, ...] = ()
    """Rows that were not understood, each after what is wrong with it."""


class GcpClient:
    """Calls GCP; one per thread, because the SDK's sessions must not be shared. Close it after use."""

    def __init__(self, project: str | None, credentials: Any, endpoints: Endpoints) -> None:
        where = "gcp"
        try:
            from google.api_core.client_options import ClientOptions
            from google.cloud import billing_v1, compute_v1
        except ImportError as error:
            advice = "Install it with: pip install 'spotctl[gcp]'"
            raise FeedUnavailable(where, f"the SDK is not installed ({error.name})", advice) from error
        with _translating_errors(where):
            if credentials is None or project is None:
                credentials, project = _from_environment(credentials, project)
            compute = ClientOptions(api_endpoint=endpoints.compute)
            billing = ClientOptions(api_endpoint=endpoints.billing)
            self._types = compute_v1.MachineTypesClient(credentials=credentials, client_options=compute)
            self._advice = compute_v1.AdviceClient(credentials=credentials, client_options=compute)
            self._catalog = billing_v1.CloudCatalogClient(
                credentials=credentials, client_options=billing, transport="rest"
            )
        if not project:
            raise FeedUnavailable(where, "no project is set", "Set GOOGLE_CLOUD_PROJECT to one of yours")
        self._project = project

    def close(self) -> None:
        """Closes its connections."""
        for client in (self._types, self._advice, self._catalog):
            transport: Any = client.transport
            transport.close()

    def list_machine_types(self, token: str) -> Listing:
        """Lists machine types; rows are (zone, MachineShape)."""
        from google.cloud import compute_v1

        request = compute_v1.AggregatedListMachineTypesRequest(
            project=self._project,
            max_results=_TYPES_A_PAGE,
            page_token=token,
        )
        with _translating_errors("gcp machineTypes.aggregatedList"):
            pager = self._types.aggregated_list(request=request, retry=None, timeout=_TIMEOUT_S)
            answer = compute_v1.MachineTypeAggregatedList.pb(next(iter(pager.pages)))
        rows = [
            (scope.removeprefix("zones/"), answers.parse_shape(found))
            for scope, listed in answer.items.items()
            for found in listed.machine_types
        ]
        return Listing(tuple(rows), len(rows), answer.next_page_token, tuple(answer.unreachables))

    def list_skus(self, month: Month | None, token: str) -> Listing:
        """Lists the SKUs of VMs, as they are now, or as they were in ``month``."""
        from google.cloud import billing_v1

        where = "gcp Cloud Billing Catalog" + (f" {month}" if month else "")
        request = billing_v1.ListSkusRequest(
            parent=_COMPUTE_ENGINE, page_size=_SKUS_A_PAGE, page_token=token, currency_code="USD"
        )
        if month is not None:
            request.start_time, request.end_time = month.begin, month.end
        with _translating_errors(where):
            pager = self._catalog.list_skus(request=request, retry=None, timeout=_TIMEOUT_S)
            answer = billing_v1.ListSkusResponse.pb(next(iter(pager.pages)))
            found, unread = answers.read_rows(answer.skus, answers.parse_sku)
        rows = tuple(sku for sku in found if sku is not None)
        return Listing(rows, len(answer.skus), answer.next_page_token, unread=unread)

    def read_capacity_history(self, region: str, zone: str, machine_type: str) -> History | None:
        """Returns prices and preemption rates of one zone; None where GCP keeps none for the type."""
        from google.api_core import exceptions
        from google.cloud import compute_v1

        where = f"gcp capacityHistory {machine_type}@{zone}"
        request = compute_v1.CapacityHistoryAdviceRequest(
            project=self._project,
            region=region,
            capacity_history_request_resource={
                "types": ["PRICE", "PREEMPTION"],
                "instance_properties": {
                    "machine_type": machine_type,
                    "scheduling": {"provisioning_model": "SPOT"},
                },
                "location_policy": {"location": f"zones/{zone}"},
            },
        )
        with _translating_errors(where):
            try:
                found = self._advice.capacity_history(request=request, retry=None, timeout=_TIMEOUT_S)
            except (exceptions.BadRequest, exceptions.NotFound):
                return None
            return answers.parse_history(compute_v1.CapacityHistoryResponse.pb(found))


def _from_environment(credentials: Any, project: str | None) -> tuple[Any, str | None]:
    import google.auth

    found, usual = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    return credentials or found, project or usual


@contextmanager
def _translating_errors(where: str) -> Iterator[None]:
    """Turns SDK errors into ours. An error of the parsers means that the answer is malformed."""
    import requests
    from google.api_core import exceptions
    from google.auth import exceptions as auth
    from google.protobuf import json_format

    try:
        yield
    except FeedError:
        raise
    except exceptions.GoogleAPICallError as error:
        raise _refusal_error(where, error) from error
    except auth.DefaultCredentialsError as error:
        raise FeedUnavailable(where, "no credentials were found", _LOG_IN) from error
    except auth.RefreshError as error:
        raise FeedCredentialsExpired(where, "the credentials cannot be renewed", _LOG_IN) from error
    except (requests.RequestException, auth.TransportError) as error:
        found = f"no whole answer ({type(error).__name__})"
        raise FeedUnreachable(where, found, "Check the connection and fetch again") from error
    except (json_format.Error, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        found = f"an answer that cannot be read ({type(error).__name__}: {str(error)[:200]})"
        raise FeedBroken(where, found, "Update the SDK, or fetch again later") from error


def _refusal_error(where: str, error: Any) -> FeedError:
    """Chooses the error for an answer that says no."""
    said = f"HTTP {error.code}: {str(error.message)[:200]}"
    status, reasons = int(error.code or 0), str(error.reason) + str(error.errors)
    if status == 429 or (status == 403 and any(reason in reasons for reason in _QUOTA_REASONS)):
        return FeedThrottled(where, said, "Fetch again later", _retry_after_s(error.response))
    if status == 401:
        return FeedCredentialsExpired(where, said, _LOG_IN)
    if status == 403:
        return RegionRefused(where, said, "Ask for compute.viewer on the project, or enable the API it names")
    if status >= 500 or status == 408:
        return FeedUnreachable(where, said, "Fetch again later")
    if status == 400 and "API_KEY" in reasons:
        return FeedCredentialsRejected(where, said, _LOG_IN)
    return FeedBroken(where, said, "Update the SDK; report it if that does not help")


def _retry_after_s(response: Any) -> float | None:
    text = "" if response is None else response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None


def month_of(at: Instant) -> Month:
    moment = datetime.fromtimestamp(at, UTC)
    return Month(moment.year, moment.month)
