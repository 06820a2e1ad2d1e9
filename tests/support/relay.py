#!/usr/bin/env python3
"""A TCP relay between agents and a coordinator that understands just enough of the session to break it
at an exact byte of an update.

    relay.py LISTEN_PORT TARGET_PORT UP_BYTES_PER_S        0: no limit

Commands on standard input, one a line:
    trap FRACTION cut|hold    the next update that is offered: forward this fraction of its bytes, then
                              reset both ends (cut) or forward nothing any more in either direction
                              (hold). FRACTION "after": all of its bytes, but nothing of what the
                              coordinator says from then on.
Events on standard output, one JSON object a line:
    {"event": "sprung", "lease", "bytes", "at"}            the trap has gone off at this byte
    {"event": "welcome", "message"}                        the coordinator has welcomed an agent
    {"event": "sent", "lease", "bytes", "sent"}            all bytes of the update that left the agent,
                                                           written after each data frame
What a cut loses on its way is counted as sent: before it cuts, the relay reads what the agent still
sends for 0.2 s."""
import asyncio
import json
import socket
import struct
import sys

HEADER = 24  # of a data frame: stream u32, length u24, kind u8, offset u64, checksum u64
DRAIN_S = 0.2


def say(**event):
    print(json.dumps(event), flush=True)


class Relay:
    def __init__(self, target_port, rate):
        self.target_port, self.rate = target_port, rate
        self.trap = None      # (fraction or "after", action)
        self.target = None    # the offer that the trap waits for
        self.sent = {}        # lease -> bytes that left the agent
        self.offers = {}      # lease -> bytes of the payload

    def offered(self, link, offer):
        lease = offer["lease"]
        link.leases[offer["stream"]] = lease
        self.offers[lease] = offer["bytes"]
        self.sent.setdefault(lease, 0)
        if self.trap and self.target is None:
            self.target = lease


class Link:
    """One connection. Upstream bytes are taken apart; downstream bytes are passed on."""

    def __init__(self, relay, reader, writer):
        self.relay, self.reader, self.writer = relay, reader, writer
        self.leases = {}
        self.buffer = b""
        self.upgraded = False
        self.frozen = False
        self.deaf = False

    async def run(self):
        try:
            self.far_reader, self.far_writer = await asyncio.open_connection(
                "127.0.0.1", self.relay.target_port)
        except OSError:
            self.reset(self.writer)
            return
        down = asyncio.ensure_future(self.pass_down())
        try:
            while data := await self.reader.read(16384):
                await self.take(data)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        self.reset(self.far_writer)
        self.reset(self.writer)
        down.cancel()

    @staticmethod
    def reset(writer):
        raw = writer.get_extra_info("socket")
        if raw is not None and raw.fileno() >= 0:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def pass_down(self):
        try:
            while data := await self.far_reader.read(65536):
                self.look_for_welcome(data)
                if self.frozen or self.deaf:
                    continue
                self.writer.write(data)
                await self.writer.drain()
        except ConnectionError:
            pass
        self.reset(self.writer)

    @staticmethod
    def look_for_welcome(data):
        """It comes in one piece, unmasked: it is small and its frame is written whole."""
        at = data.find(b'{"type":"welcome"')
        if at >= 0:
            message, _ = json.JSONDecoder().raw_decode(data[at:].decode(errors="replace"))
            say(event="welcome", message=message)

    async def forward(self, data):
        if self.frozen or not data:
            return
        try:
            self.far_writer.write(data)
            await self.far_writer.drain()
        except ConnectionError:
            self.reset(self.writer)
        if self.relay.rate:
            await asyncio.sleep(len(data) / self.relay.rate)

    async def take(self, data):
        self.buffer += data
        if not self.upgraded:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0 or not self.buffer.startswith(b"GET /ws/agent"):
                data, self.buffer = self.buffer, b""
                await self.forward(data)
                return
            await self.forward(self.buffer[:end + 4])
            self.buffer = self.buffer[end + 4:]
            self.upgraded = True
        while frame := self.next_frame():
            await self.take_frame(*frame)

    def next_frame(self):
        """(opcode, header bytes, payload unmasked, payload as sent), or None until it is whole."""
        b = self.buffer
        if len(b) < 2:
            return None
        length, at = b[1] & 0x7F, 2
        if length == 126:
            length, at = (struct.unpack(">H", b[2:4])[0] if len(b) >= 4 else 1 << 62), 4
        elif length == 127:
            length, at = (struct.unpack(">Q", b[2:10])[0] if len(b) >= 10 else 1 << 62), 10
        at += 4  # the mask
        if len(b) < at + length:
            return None
        mask, raw = b[at - 4:at], b[at:at + length]
        repeated = (mask * (length // 4 + 1))[:length]
        plain = (int.from_bytes(raw, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")
        self.buffer = b[at + length:]
        return b[0] & 0x0F, b[:at], plain, raw

    async def take_frame(self, opcode, head, plain, raw):
        relay = self.relay
        if opcode == 1 and b'"offer"' in plain:
            message = json.loads(plain)
            if message["type"] == "offer":
                relay.offered(self, message)
        if opcode != 2 or self.frozen:
            await self.forward(head + raw)
            if opcode == 2:
                self.count(plain)
            return
        stream, length_kind, offset = struct.unpack("<IIQ", plain[:16])
        lease = self.leases.get(stream)
        bytes_here = length_kind & 0xFFFFFF
        self.count(plain)
        if not relay.trap or lease is None or lease != relay.target:
            await self.forward(head + raw)
            return
        fraction, action = relay.trap
        total = relay.offers[lease]
        last = offset + bytes_here >= total
        if fraction == "after":
            self.deaf = self.deaf or last
            await self.forward(head + raw)
            if last:
                await self.spring(lease, total, action)
            return
        cut_at = int(total * float(fraction))
        if offset + bytes_here <= cut_at and not last:
            await self.forward(head + raw)
            return
        await self.forward((head + raw)[:len(head) + HEADER + max(0, cut_at - offset)])
        await self.spring(lease, cut_at, action)

    def count(self, plain):
        stream, length_kind = struct.unpack("<II", plain[:8])
        lease = self.leases.get(stream)
        if lease is not None:
            self.relay.sent[lease] += length_kind & 0xFFFFFF
            say(event="sent", lease=lease, bytes=self.relay.offers[lease], sent=self.relay.sent[lease])

    async def spring(self, lease, at, action):
        self.relay.trap = self.relay.target = None
        if action == "cut" and at == self.relay.offers[lease]:
            await asyncio.sleep(DRAIN_S)  # the coordinator has all of it before the line breaks
        self.frozen = True
        until = asyncio.get_running_loop().time() + DRAIN_S
        while (left := until - asyncio.get_running_loop().time()) > 0:
            try:
                data = await asyncio.wait_for(self.reader.read(65536), left)
            except asyncio.TimeoutError:
                break
            if not data:
                break
            self.buffer += data
            while frame := self.next_frame():
                if frame[0] == 2:
                    self.count(frame[2])
        say(event="sprung", lease=lease, bytes=self.relay.offers[lease], at=at)
        if action == "cut":
            self.reset(self.far_writer)
            self.reset(self.writer)


async def main():
    listen, target, rate = (int(x) for x in sys.argv[1:4])
    relay = Relay(target, rate)
    server = await asyncio.start_server(lambda r, w: Link(relay, r, w).run(), "127.0.0.1", listen)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    say(event="ready", port=server.sockets[0].getsockname()[1])
    while line := await commands.readline():
        _, fraction, action = line.decode().split()
        relay.trap, relay.target = (fraction, action), None


asyncio.run(main())
