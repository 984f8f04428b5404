// Calls a guest's agent over the unix socket of a VMM, with the dialer of Firecracker's own Go SDK.
//
//	program SOCKET PORT TOKEN TEXT
//
// Asks for Health, has a command print TEXT in capitals, and prints both answers.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/firecracker-microvm/firecracker-go-sdk/vsock"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "guest-agent/vsock-dialer/gen/svc/guest/v1alpha1"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	path, token, text := os.Args[1], os.Args[3], os.Args[4]
	port := uint32(must(strconv.ParseUint(os.Args[2], 10, 32)))
	dial := func(ctx context.Context, _ string) (net.Conn, error) { return vsock.DialContext(ctx, path, port) }
	connection := must(grpc.NewClient(
		"passthrough:///guest",
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	))
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "svc-instance-token", token)
	agent := pb.NewGuestAgentClient(connection)
	fmt.Println("alive", must(agent.Health(ctx, &pb.HealthRequest{}, grpc.WaitForReady(true))).Alive)

	call := must(agent.Exec(ctx))
	start := pb.ExecFrame_Start{Start: &pb.ExecStart{Args: []string{"tr", "a-z", "A-Z"}, Stdin: true}}
	must(0, call.Send(&pb.ExecFrame{Frame: &start}))
	must(0, call.Send(&pb.ExecFrame{Frame: &pb.ExecFrame_Stdin{Stdin: []byte(text + "\n")}}))
	must(0, call.CloseSend())
	frame := must(call.Recv())
	for ; frame.GetExit() == nil; frame = must(call.Recv()) {
		os.Stdout.Write(frame.GetStdout())
	}
	fmt.Println("exit", frame.GetExit().Code)
}
