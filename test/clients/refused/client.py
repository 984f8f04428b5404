"""Calls Health with grpcio and prints the status. Its environment has the certificates."""

import os
import sys

import grpc

ca, key, certificate = (os.environ[name].encode() or None for name in ("CA", "KEY", "CERTIFICATE"))
settings = [("grpc.ssl_target_name_override", "localhost")]
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials(ca, key, certificate), settings)
try:
    channel.unary_unary("/svc.guest.v1alpha1.GuestAgent/Health")(b"")
    print(0)
except grpc.RpcError as error:
    print(error.code().value[0], error.details())
