package server

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

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
