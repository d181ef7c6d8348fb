"""Who a test is to the clouds: keys and certificates made on the spot, good for 127.0.0.1 and an hour."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.fakes.servers import FakeServer, Reply, Request


def service_account(folder: Path) -> Path:
    """A key file as Google hands them out. Its SDK signs tokens with it itself, and asks nobody."""
    about = {
        "type": "service_account",
        "project_id": "a-project",
        "private_key_id": "one",
        "private_key": _pem(_key()).decode(),
        "client_email": "somebody@a-project.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": "http://127.0.0.1:1/nobody-should-ask",
    }
    path = folder / "service-account.json"
    path.write_text(json.dumps(about))
    return path


def managed_identity() -> FakeServer:
    """Where a machine of Azure's asks who it is; IDENTITY_ENDPOINT names it, IDENTITY_HEADER is any text."""

    def answer(request: Request) -> Reply:
        assert "x-identity-header" in {name.lower() for name in request.headers}
        token = {"access_token": "a-token", "expires_on": "4102444800", "token_type": "Bearer"}
        return Reply(body=json.dumps(token).encode())

    return FakeServer(answer)


def certificate(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS, and the file that makes clients trust it."""
    key, now = _key(), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    local = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(local, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    trusted, both = folder / "trusted.pem", folder / "server.pem"
    trusted.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    both.write_bytes(_pem(key) + trusted.read_bytes())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, trusted


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
