// The peer: a grpc-go server of the same schema that does the same work, as one would write it in Go.
// Mutual TLS 1.3 and the token are checked as the agent checks them.
package main

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

// serve listens on an address, prints its port, and serves for ever.
func serve(directory, token, address string) error {
	secure, err := tlsConfig(directory, "server")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	check := tokenCheck{token: token}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(secure)),
		grpc.UnaryInterceptor(check.unary),
		grpc.StreamInterceptor(check.stream),
	)
	pb.RegisterGuestAgentServer(server, &guest{})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	return server.Serve(listener)
}

type tokenCheck struct{ token string }

func (check tokenCheck) admit(ctx context.Context) error {
	values := metadata.ValueFromIncomingContext(ctx, "svc-instance-token")
	if len(values) == 1 && subtle.ConstantTimeCompare([]byte(values[0]), []byte(check.token)) == 1 {
		return nil
	}
	return status.Error(codes.Unauthenticated, "the instance token is missing or wrong")
}

func (check tokenCheck) unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := check.admit(ctx); err != nil {
		return nil, err
	}
	return next(ctx, request)
}

func (check tokenCheck) stream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := check.admit(stream.Context()); err != nil {
		return err
	}
	return next(service, stream)
}

// guest serves the schema. It keeps what Health reports.
type guest struct {
	pb.UnimplementedGuestAgentServer
	lastActivity atomic.Int64
}

func (g *guest) touch() { g.lastActivity.Store(time.Now().UnixNano()) }

func (g *guest) Health(context.Context, *pb.HealthRequest) (*pb.HealthResponse, error) {
	return &pb.HealthResponse{
		Alive:            true,
		Ready:            true,
		LastUserActivity: timestamppb.New(time.Unix(0, g.lastActivity.Load())),
		GuestTime:        timestamppb.Now(),
	}, nil
}
