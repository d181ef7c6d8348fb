"""Wraps boto3 as the AWS feed needs it: one session, its clients, guarded pages, errors by what to do next.

The only module that knows botocore's exceptions. boto3 is imported when an ``AwsSession`` is made. Timestamps
in answers stay the text that AWS sent, as in AWS's own command line: parsing them one by one costs more than
all the rest of a page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

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

Answer = Mapping[str, Any]

_THROTTLED: Final = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
)
_REJECTED: Final = frozenset(
    {
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_REFUSED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "Blocked",
        "OptInRequired",
        "UnauthorizedOperation",
    }
)
_PASSING: Final = frozenset(
    {
        "ExpiredNextTokenException",
        "InternalError",
        "InternalFailure",
        "InvalidNextToken",
        "InvalidPaginationToken",
        "ServiceUnavailable",
        "Unavailable",
    }
)
"""Asked again from the last stored row, the call may succeed."""
_GOES_ON: Final = "Check the connection, then fetch again: it goes on where it was"
_SET_UP: Final = "Run 'aws configure', or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Sets how AWS is asked. The defaults are right for the public cloud."""

    home_region: str = "us-east-1"
    """The region that is asked which regions there are."""
    regions: tuple[str, ...] = ()
    """Empty: every region that is enabled for the account."""
    zones: tuple[str, ...] = ()
    """Zones to fetch spot prices of; empty: all."""
    types: tuple[str, ...] = ()
    """Instance types to fetch; empty: all."""
    profile: str | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """Address by service ("ec2", "pricing") where it is not AWS's own; AWS_ENDPOINT_URL works too."""
    attempts: int = 4
    """Attempts of one call, by botocore; ``feeds.fetch`` retries on top."""
    retry_mode: Literal["standard", "adaptive"] = "adaptive"
    """botocore's name for it. This one also slows down a region's calls for as long as AWS throttles."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0


class AwsSession:
    """Holds a boto3 session with credentials. Raises FeedUnavailable where there is none."""

    def __init__(self, settings: AwsSettings) -> None:
        try:
            import boto3
            import botocore.session
            from botocore.config import Config
        except ImportError as error:
            advice = "Install it with: pip install 'spotctl[aws]'"
            raise FeedUnavailable("aws", f"its SDK is not installed ({error})", advice) from error
        core = botocore.session.Session(profile=settings.profile)
        # Before any client is made: clients take their parsers from here.
        core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_as_it_came)
        self._settings = settings
        self._config = Config(
            retries={"mode": settings.retry_mode, "total_max_attempts": settings.attempts},
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
        )
        self._making = threading.Lock()  # a session makes one client at a time
        with translating_errors("aws"):
            self._session: Any = boto3.Session(botocore_session=core)
            if self._session.get_credentials() is None:
                raise FeedUnavailable("aws", "there are no credentials", _SET_UP)

    def make_client(self, service: str, region: str) -> Any:
        """Returns a client of ``service``, for one thread or many."""
        with self._making, translating_errors(f"aws {region}"):
            return self._session.client(
                service,
                region_name=region,
                endpoint_url=self._settings.endpoints.get(service),
                config=self._config,
            )


def _as_it_came(text: str) -> str:
    return text


def all_pages(where: str, method: Callable[..., Answer], **asked: object) -> Iterator[Answer]:
    """Yields all pages of a call.

    A page may be short or empty and still not be the last: only the token tells.
    """
    token, seen = "", set[str]()
    while True:
        with translating_errors(where):
            answer = method(**asked, **({"NextToken": token} if token else {}))
        yield answer
        # AWS sends either no token or an empty one at the end.
        token = answer.get("NextToken") or ""
        if not token:
            return
        if token in seen:
            found = f"the NextToken of page {len(seen) + 1} had come before: its pages never end"
            raise FeedBroken(where, found, "Nothing of this span was stored; fetch again later")
        seen.add(token)


class translating_errors:  # noqa: N801 - reads as the statement it makes: with translating_errors(where): ...
    """Turns whatever botocore raises within it into a FeedError, chained."""

    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Errors of nested blocks are translated already.
        if error is None or isinstance(error, FeedError):
            return
        known = _translate_error(self.where, error)
        if known is not None:
            raise known from error


def _translate_error(where: str, error: BaseException) -> FeedError | None:
    """Returns None for what is no error of AWS or of the way there: a bug, or an interrupt."""
    from botocore import exceptions, parsers

    if isinstance(error, exceptions.ClientError):
        return _refusal_error(where, error.response)
    said = " ".join(str(error).split())[:300]
    if isinstance(error, exceptions.UnauthorizedSSOTokenError | exceptions.TokenRetrievalError):
        return FeedCredentialsExpired(where, said, "Log in again, for instance with 'aws sso login'")
    if isinstance(
        error,
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError
        | exceptions.ProfileNotFound
        | exceptions.SSOError,
    ):
        return FeedUnavailable(where, said, _SET_UP)
    if isinstance(error, parsers.ResponseParserError):
        return FeedUnreachable(
            where, f"an answer that broke off, or is none of AWS's ({said[:100]})", _GOES_ON
        )
    if isinstance(error, exceptions.HTTPClientError):
        return FeedUnreachable(where, said, _GOES_ON)
    if isinstance(error, exceptions.BotoCoreError):
        return FeedBroken(where, said, "Check the AWS settings (region, endpoint, ~/.aws/config)")
    return None


def _refusal_error(where: str, response: Mapping[str, Any]) -> FeedError:
    """Chooses the error by AWS's error code, and by the HTTP status where the code is unknown."""
    error = response.get("Error", {})
    code = str(error.get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    said = f"{code}: {error.get('Message', '')}"[:300].rstrip(" :.")
    # Codes first, since AWS sends many of them with HTTP 400.
    if code in _THROTTLED or status == 429:
        return FeedThrottled(where, said, "Fetch again later: it goes on where it was")
    if code in _EXPIRED:
        return FeedCredentialsExpired(where, said, "Log in again, and check this machine's clock")
    if code in _REJECTED:
        return FeedCredentialsRejected(where, said, _SET_UP)
    if code in _REFUSED:
        advice = "Enable the region for the account, or allow the call to this user, or leave the region out"
        return RegionRefused(where, said, advice)
    if code in _PASSING or status >= 500:
        return FeedUnreachable(where, said, "Fetch again later: it goes on where it was")
    return FeedBroken(where, said, "This is no answer to expect; report it with this message")
