"""A visitor of the endpoint: plain requests over a socket, and Prometheus's own parser."""

import asyncio
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

READ_S = 20.0


class Reply(NamedTuple):
    status: int
    fields: dict[str, str]
    body: bytes


async def exchanged(address: str, request: bytes) -> bytes:
    """Everything that comes back until the server closes."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), READ_S)
    finally:
        writer.close()
        await writer.wait_closed()


async def fetched(address: str, path: str, method: str = "GET") -> Reply:
    request = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    head, _, body = (await exchanged(address, request.encode())).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    return Reply(int(first.split()[1]), fields, body)


class Scrape:
    """What Prometheus would have understood."""

    def __init__(self, page: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(page)}
        self._samples = [sample for family in self.families.values() for sample in family.samples]

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        (found,) = self.values(name, **labels)
        return found

    def labels(self, name: str) -> list[dict[str, str]]:
        return [sample.labels for sample in self._samples if sample.name == name]


async def scraped(address: str) -> Scrape:
    reply = await fetched(address, "/metrics")
    assert reply.status == 200
    assert reply.fields["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(reply.body.decode())
