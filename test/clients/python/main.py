"""Runs the cases of the transport suite with grpcio, and prints a line for each: "ok NAME" or "FAILED NAME: why".

The token is in GUEST_TOKEN. The folder with the generated schema is in PYTHONPATH.
"""

import argparse
import os
import pathlib
import sys

import grpc

from cases import CASES
from guest import Guest


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True, help="host:port or unix:/path")
    parser.add_argument("--certificates", type=pathlib.Path, help="folder of ca.pem, client.pem and client.key")
    parser.add_argument("--server-name", help="name in the agent's certificate")
    parser.add_argument("--folder", required=True, help="a folder of the guest")
    parser.add_argument("--pause", required=True, help="seconds to sleep in commands that are given up")
    options = parser.parse_args()

    guest = Guest(lambda: dial(options), os.environ["GUEST_TOKEN"], options.folder, options.pause)
    status = 0
    for name, run in CASES:
        try:
            run(guest)
            print(f"ok {name}", flush=True)
        except (AssertionError, grpc.RpcError) as error:
            why = " ".join(str(error).split())
            print(f"FAILED {name}: {type(error).__name__} {why}", flush=True)
            status = 1
    return status


def dial(options: argparse.Namespace) -> grpc.Channel:
    # Without the local pool, channels to one address would share a connection.
    settings = [("grpc.use_local_subchannel_pool", 1)]
    if options.certificates is None:
        return grpc.insecure_channel(options.target, settings)
    read = lambda name: (options.certificates / name).read_bytes()
    credentials = grpc.ssl_channel_credentials(read("ca.pem"), read("client.key"), read("client.pem"))
    settings.append(("grpc.ssl_target_name_override", options.server_name))
    return grpc.secure_channel(options.target, credentials, settings)


if __name__ == "__main__":
    sys.exit(main())
