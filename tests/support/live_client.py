#!/usr/bin/env python3
"""A dashboard's live stream over TLS, as far as a test needs it.

    live_client.py PORT CA_FILE HOST ORIGIN COOKIE SECONDS

Connects to 127.0.0.1:PORT, checks the certificate against HOST, asks for /ws/live, subscribes to the
overview and prints each message for SECONDS. Refused: prints the status line and ends with 1; the
stream ends early: 2."""
import base64
import json
import os
import socket
import ssl
import struct
import sys
import time


def read_exactly(stream, count):
    data = stream.read(count)
    if len(data) < count:
        sys.exit(2)
    return data


def say(tls, opcode, payload):
    """Fewer than 126 bytes, with a mask of zeros."""
    tls.sendall(bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload)


def main():
    port, ca_file, host, origin, cookie, seconds = sys.argv[1:7]
    raw = socket.create_connection(("127.0.0.1", int(port)), 10)
    tls = ssl.create_default_context(cafile=ca_file).wrap_socket(raw, server_hostname=host)
    key = base64.b64encode(os.urandom(16)).decode()
    tls.sendall((f"GET /ws/live HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {origin}\r\n"
                 f"Cookie: {cookie}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                 "Sec-WebSocket-Protocol: raven.v1\r\n\r\n").encode())
    stream = tls.makefile("rb")
    status = stream.readline().decode().strip()
    if " 101 " not in status + " ":
        print(status)
        sys.exit(1)
    while stream.readline().strip():
        pass
    say(tls, 1, json.dumps({"t": "hello", "epoch": "", "seq": {}, "sub": ["overview"]}).encode())
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        first, length = read_exactly(stream, 2)
        if length == 126:
            length, = struct.unpack(">H", read_exactly(stream, 2))
        elif length == 127:
            length, = struct.unpack(">Q", read_exactly(stream, 8))
        payload = read_exactly(stream, length)
        if first & 15 == 9:
            say(tls, 10, payload)
        elif first & 15 == 1:
            print(payload.decode(), flush=True)


main()
