package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

const (
	stdoutField = 7
	stderrField = 8
	exitField   = 9
)

func startFrame(command []string, inTerminal, hasInput bool) *pb.ExecFrame {
	start := &pb.ExecStart{Args: command, Stdin: hasInput}
	if inTerminal {
		start.Terminal = &pb.Terminal{Cols: 80, Rows: 24}
	}
	return &pb.ExecFrame{Frame: &pb.ExecFrame_Start{Start: start}}
}

func stdinFrame(bytes []byte) *pb.ExecFrame {
	return &pb.ExecFrame{Frame: &pb.ExecFrame_Stdin{Stdin: bytes}}
}

func (t *target) start(command []string, inTerminal, hasInput bool) (grpc.ClientStream, context.CancelFunc, error) {
	stream, cancel, err := t.open("GuestAgent/Exec")
	if err != nil {
		return nil, nil, err
	}
	if err := stream.SendMsg(encoded(startFrame(command, inTerminal, hasInput))); err != nil {
		cancel()
		return nil, nil, err
	}
	return stream, cancel, nil
}

func (t *target) run(command []string, inTerminal bool) (int64, error) {
	stream, cancel, err := t.start(command, inTerminal, false)
	if err != nil {
		return 0, err
	}
	defer cancel()
	if !inTerminal {
		if err := stream.CloseSend(); err != nil {
			return 0, err
		}
	}
	return awaitExit(stream)
}

func (t *target) feed(command []string, totalBytes int64, chunkBytes int) error {
	stream, cancel, err := t.start(command, false, true)
	if err != nil {
		return err
	}
	defer cancel()
	chunk := func(size int) proto.Message { return stdinFrame(make([]byte, size)) }
	if err := sendAll(stream, totalBytes, chunkBytes, chunk); err != nil {
		return err
	}
	_, err = awaitExit(stream)
	return err
}

// nextFrame returns the bytes of output in the next frame, and whether it was the exit.
func nextFrame(stream grpc.ClientStream) (output int64, ended bool, err error) {
	var raw rawMessage
	if err := stream.RecvMsg(&raw); err != nil {
		return 0, false, err
	}
	defer raw.free()
	err = raw.fields(func(number int, length int64) {
		switch number {
		case stdoutField, stderrField:
			output += length
		case exitField:
			ended = true
		}
	})
	if !ended || err != nil {
		return output, ended, err
	}
	var frame pb.ExecFrame
	if err := proto.Unmarshal(raw.data.Materialize(), &frame); err != nil {
		return output, true, err
	}
	if code := frame.GetExit().GetCode(); code != 0 {
		return output, true, fmt.Errorf("the command exited with %d", code)
	}
	return output, true, nil
}

// awaitExit reads to the end of the call, which follows the exit. Cancelling what has ended would be a reset, and many
// of those are an attack.
func awaitExit(stream grpc.ClientStream) (int64, error) {
	total := int64(0)
	for {
		output, ended, err := nextFrame(stream)
		total += output
		if err != nil {
			return total, err
		}
		if ended {
			return total, atEnd(stream.RecvMsg(&rawMessage{}))
		}
	}
}

func atEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	if err == nil {
		return errors.New("a frame came after the exit")
	}
	return err
}

type grpcEcho struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
}

func (t *target) echo(command []string) (*grpcEcho, error) {
	stream, cancel, err := t.start(command, false, true)
	if err != nil {
		return nil, err
	}
	return &grpcEcho{stream: stream, cancel: cancel}, nil
}

var oneByte = encoded(stdinFrame([]byte("x")))

func (e *grpcEcho) roundTrip() error {
	if err := e.stream.SendMsg(oneByte); err != nil {
		return err
	}
	for {
		output, ended, err := nextFrame(e.stream)
		if err != nil || output > 0 {
			return err
		}
		if ended {
			return errors.New("the command ended")
		}
	}
}

func (e *grpcEcho) end() error {
	defer e.cancel()
	if err := e.stream.CloseSend(); err != nil {
		return err
	}
	_, err := awaitExit(e.stream)
	return err
}
