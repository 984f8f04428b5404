"""Declares idle over a unix socket, once with each of grpcio's two interfaces, and prints the length of each answer.

Needs no generated code, so that it runs with any grpcio.
"""

import asyncio
import sys

import grpc

METHOD = "/svc.guest.v1alpha1.WorkloadService/DeclareIdle"
TIMEOUT_S = 30


def blocking(target: str) -> bytes:
    with grpc.insecure_channel(target) as channel:
        return channel.unary_unary(METHOD)(b"", timeout=TIMEOUT_S)


async def asynchronous(target: str) -> bytes:
    async with grpc.aio.insecure_channel(target) as channel:
        return await channel.unary_unary(METHOD)(b"", timeout=TIMEOUT_S)


if __name__ == "__main__":
    print(len(blocking(sys.argv[1])), len(asyncio.run(asynchronous(sys.argv[1]))))
