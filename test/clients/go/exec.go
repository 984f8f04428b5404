package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	pb "guestagent.test/client/gen/svc/guest/v1alpha1"
)

// A running command, frame by frame.
type command struct {
	call   grpc.BidiStreamingClient[pb.ExecFrame, pb.ExecFrame]
	pid    uint32
	stdout bytes.Buffer
	stderr bytes.Buffer
	exit   *pb.ExecExit
}

func start(ctx context.Context, guest guest, what *pb.ExecStart) (*command, error) {
	call, err := guest.agent.Exec(ctx)
	if err != nil {
		return nil, err
	}
	return &command{call: call}, call.Send(&pb.ExecFrame{Frame: &pb.ExecFrame_Start{Start: what}})
}

func (c *command) write(text string) error {
	return c.call.Send(&pb.ExecFrame{Frame: &pb.ExecFrame_Stdin{Stdin: []byte(text)}})
}

func (c *command) resize(cols, rows uint32) error {
	size := &pb.TerminalSize{Cols: cols, Rows: rows}
	return c.call.Send(&pb.ExecFrame{Frame: &pb.ExecFrame_Resize{Resize: size}})
}

func (c *command) signal(number uint32) error {
	return c.call.Send(&pb.ExecFrame{Frame: &pb.ExecFrame_Signal{Signal: &pb.ExecSignal{Number: number}}})
}

// Takes in one frame; io.EOF at the end of a call that ended with OK.
func (c *command) next() error {
	message, err := c.call.Recv()
	if err != nil {
		return err
	}
	switch frame := message.Frame.(type) {
	case *pb.ExecFrame_Started:
		c.pid = frame.Started.Pid
	case *pb.ExecFrame_Stdout:
		c.stdout.Write(frame.Stdout)
	case *pb.ExecFrame_Stderr:
		c.stderr.Write(frame.Stderr)
	case *pb.ExecFrame_Exit:
		c.exit = frame.Exit
	default:
		return fmt.Errorf("a frame that only clients send: %T", frame)
	}
	return nil
}

func (c *command) until(text string) error {
	for !bytes.Contains(c.stdout.Bytes(), []byte(text)) {
		if err := c.next(); err != nil {
			return fmt.Errorf("before %q: %w", text, err)
		}
	}
	return nil
}

// Reads to the end of the call.
func (c *command) wait() error {
	for {
		if err := c.next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	if c.exit == nil {
		return errors.New("the call ended without an exit frame")
	}
	return nil
}
