"""A guest agent as the cases use it."""

import queue
from collections.abc import Callable, Iterator

import grpc
import rpc_status_pb2
from google.rpc import error_details_pb2
from svc.guest.v1alpha1 import exec_pb2, file_tree_pb2_grpc, guest_agent_pb2_grpc, tunnel_pb2_grpc


class Guest:
    """Calls of one connection, each with the token."""

    def __init__(self, dial: Callable[[], grpc.Channel], token: str, folder: str, pause: str) -> None:
        channel = dial()
        self.agent = guest_agent_pb2_grpc.GuestAgentStub(channel)
        self.tree = file_tree_pb2_grpc.FileTreeStub(channel)
        self.tunnel = tunnel_pb2_grpc.TunnelStub(channel)
        self.metadata = with_token(token)
        self.folder = folder
        # Argument of sleep(1) that marks the commands which the cases give up.
        self.pause = pause
        self._dial = dial
        self._token = token

    def again(self) -> "Guest":
        return Guest(self._dial, self._token, self.folder, self.pause)

    def exec(self, timeout: float | None = None, **start: object) -> "Command":
        return Command(self, timeout, exec_pb2.ExecStart(**start))


class Command:
    """A running command, frame by frame."""

    def __init__(self, guest: Guest, timeout: float | None, start: exec_pb2.ExecStart) -> None:
        self._requests: queue.SimpleQueue[exec_pb2.ExecFrame | None] = queue.SimpleQueue()
        self.stdout = b""
        self.stderr = b""
        self.exit: exec_pb2.ExecExit | None = None
        self.send(start=start)
        self.call = guest.agent.Exec(self._frames(), metadata=guest.metadata, timeout=timeout)

    def send(self, **frame: object) -> None:
        self._requests.put(exec_pb2.ExecFrame(**frame))

    def close_stdin(self) -> None:
        """Half-closes the call."""
        self._requests.put(None)

    def next(self) -> bool:
        """Takes in one frame. False at the end of a call that ended with OK."""
        frame = next(self.call, None)
        if frame is None:
            return False
        kind = frame.WhichOneof("frame")
        assert kind in ("started", "stdout", "stderr", "exit"), f"a frame that only clients send: {kind}"
        if kind == "stdout":
            self.stdout += frame.stdout
        elif kind == "stderr":
            self.stderr += frame.stderr
        elif kind == "exit":
            self.exit = frame.exit
            self.close_stdin()
        return True

    def until(self, text: bytes) -> None:
        while text not in self.stdout:
            assert self.next(), f"ended before {text!r}: {self.stdout!r}"

    def wait(self) -> exec_pb2.ExecExit:
        while self.next():
            pass
        assert self.exit is not None, "the call ended without an exit frame"
        return self.exit

    def _frames(self) -> Iterator[exec_pb2.ExecFrame]:
        return iter(self._requests.get, None)


def with_token(token: str) -> list[tuple[str, str]]:
    return [("svc-instance-token", token)]


def failure_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """The status, reason and metadata that a call fails with."""
    try:
        call()
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
        info = error_details_pb2.ErrorInfo()
        if details is not None:
            status = rpc_status_pb2.Status.FromString(details)
            assert status.details[0].Unpack(info), "the detail is no ErrorInfo"
            assert info.domain == "svc.guest", info.domain
        return error.code(), info.reason, dict(info.metadata)
    raise AssertionError("the call ended with OK")
