package server

import (
	"context"
	"crypto/subtle"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

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
