"""Bytes over a connection, exactly as an attacker writes them."""

from __future__ import annotations

import asyncio

READ_MAX = 1 << 20


async def said(port: int, data: bytes, wait_s: float = 3.0) -> bytes:
    """What a server on this machine answers to these bytes until it hangs up, or until nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = bytearray()
    try:
        writer.write(data)
        async with asyncio.timeout(wait_s):
            while len(found) < READ_MAX and (part := await reader.read(1 << 16)):
                found += part
                if _is_whole(found):
                    break
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    return bytes(found)


def status(answer: bytes) -> int:
    """The status of an answer; 0 if there is none."""
    first = answer.partition(b"\r\n")[0].split()
    return int(first[1]) if len(first) > 1 and first[0].startswith(b"HTTP/") and first[1].isdigit() else 0


def headers(answer: bytes) -> dict[str, str]:
    """The headers of an answer, in small letters."""
    lines = answer.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_whole(found: bytearray) -> bool:
    head, gap, body = bytes(found).partition(b"\r\n\r\n")
    told = headers(head + gap)
    if told.get("transfer-encoding") == "chunked":
        return body.endswith(b"0\r\n\r\n")
    return bool(gap) and told.get("content-length", "").isdigit() and len(body) >= int(told["content-length"])
