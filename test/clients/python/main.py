"""Makes the calls that its standard input asks for with grpcio (../program.ts has the protocol)."""

import os
import queue
import struct
import sys
import threading

import grpc

OPEN, MESSAGE, END, CANCEL = range(4)
OUTPUT = threading.Lock()


def main() -> None:
    channel = dial(sys.argv[1])
    waiting: dict[int, tuple[list[str], queue.SimpleQueue[bytes | None]]] = {}
    calls: dict[int, grpc.Call] = {}
    while head := sys.stdin.buffer.read(9):
        size, id, kind = struct.unpack(">IIB", head)
        body = sys.stdin.buffer.read(size - 5)
        if kind == OPEN:
            waiting[id] = body.decode().split("\n"), queue.SimpleQueue()
        elif kind == CANCEL:
            calls[id].cancel()
            continue
        (arity, path, token, timeout_ms), requests = waiting[id]
        if kind != OPEN:
            requests.put(body if kind == MESSAGE else None)
        # One request goes out as a whole.
        if kind == (OPEN if arity.startswith("stream") else MESSAGE):
            begin = getattr(channel, arity)(path)
            request = iter(requests.get, None) if arity.startswith("stream") else body
            calls[id] = (begin.future if arity.endswith("unary") else begin)(
                request,
                timeout=int(timeout_ms) / 1000 if timeout_ms else None,
                metadata=[("svc-instance-token", token)],
            )
            threading.Thread(target=receive, args=(id, calls[id], arity), daemon=True).start()


def dial(target: str) -> grpc.Channel:
    if "CA" not in os.environ:
        return grpc.insecure_channel(target)
    ca, key, certificate = (os.environ[name].encode() for name in ("CA", "KEY", "CERTIFICATE"))
    settings = [("grpc.ssl_target_name_override", os.environ["SERVER_NAME"])]
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, certificate), settings)


def receive(id: int, call: grpc.Call, arity: str) -> None:
    try:
        for answer in call if arity.endswith("stream") else (call.result(),):
            write(id, MESSAGE, answer)
    except (grpc.RpcError, grpc.FutureCancelledError):
        pass  # The status says it.
    message = (call.details() or "").encode()
    details = dict(call.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    write(id, END, struct.pack(">BH", call.code().value[0], len(message)) + message + details)


def write(id: int, kind: int, body: bytes) -> None:
    with OUTPUT:
        sys.stdout.buffer.write(struct.pack(">IIB", len(body) + 5, id, kind) + body)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
