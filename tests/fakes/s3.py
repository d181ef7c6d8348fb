"""Plays S3 over HTTP, for boto3 and s3fs as users have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer


@contextmanager
def s3_bucket(name: str, address: str = "127.0.0.1") -> Iterator[str]:
    """Runs a server with the bucket ``name``, and leads this process and its children to it by variables.

    Yields the bucket's URL. moto keeps what it is given in the process: a bucket may hold files of earlier
    tests.
    """
    server = ThreadedMotoServer(ip_address=address, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    filesystems = fsspec.get_filesystem_class("s3")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_ACCESS_KEY_ID", "nobody")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
        boto3.client("s3").create_bucket(Bucket=name)
        # s3fs keeps a connection for the whole process, and would ask the server of an earlier test.
        filesystems.clear_instance_cache()
        yield f"s3://{name}"
        filesystems.clear_instance_cache()
    server.stop()
