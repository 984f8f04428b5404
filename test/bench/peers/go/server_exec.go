package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

// As the agent's largest piece of output.
const outputChunkBytes = 64 * 1024

type execStream = grpc.BidiStreamingServer[pb.ExecFrame, pb.ExecFrame]

// sender lets the two output streams share the call, which takes one message at a time.
type sender struct {
	stream execStream
	mutex  sync.Mutex
}

func (s *sender) send(frame *pb.ExecFrame) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.stream.Send(frame)
}

func (g *guest) Exec(stream execStream) error {
	g.touch()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil || len(start.Args) == 0 {
		return status.Error(codes.InvalidArgument, "the first frame must be start")
	}
	command := exec.Command(start.Args[0], start.Args[1:]...)
	command.Dir = start.Cwd
	command.Env = os.Environ()
	for name, value := range start.Env {
		command.Env = append(command.Env, name+"="+value)
	}
	if start.Terminal != nil {
		return g.runInTerminal(stream, command, start.Terminal)
	}
	return g.runOnPipes(stream, command, start.Stdin)
}

func (g *guest) runOnPipes(stream execStream, command *exec.Cmd, hasInput bool) error {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := command.StderrPipe()
	if err != nil {
		return err
	}
	var stdin io.WriteCloser
	if hasInput {
		if stdin, err = command.StdinPipe(); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := command.Start(); err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	out := &sender{stream: stream}
	if err := out.send(startedFrame(command.Process.Pid)); err != nil {
		return err
	}
	go g.feed(stream, command, stdin)
	var readers sync.WaitGroup
	readers.Go(func() { pump(stdout, out, stdoutFrame) })
	readers.Go(func() { pump(stderr, out, stderrFrame) })
	readers.Wait()
	return g.finish(out, command.Wait(), command, began)
}

func (g *guest) runInTerminal(stream execStream, command *exec.Cmd, terminal *pb.Terminal) error {
	began := time.Now()
	size := &pty.Winsize{Cols: uint16(terminal.Cols), Rows: uint16(terminal.Rows)}
	file, err := pty.StartWithSize(command, size)
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	defer file.Close()
	out := &sender{stream: stream}
	if err := out.send(startedFrame(command.Process.Pid)); err != nil {
		return err
	}
	go g.feed(stream, command, file)
	pump(file, out, stdoutFrame)
	return g.finish(out, command.Wait(), command, began)
}

// feed carries the client's frames to the command, and kills its group when the client is gone.
func (g *guest) feed(stream execStream, command *exec.Cmd, stdin io.WriteCloser) {
	for {
		frame, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if stdin != nil && command.SysProcAttr != nil && command.SysProcAttr.Setpgid {
				stdin.Close()
			}
			return
		}
		if err != nil {
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			return
		}
		g.touch()
		switch content := frame.Frame.(type) {
		case *pb.ExecFrame_Stdin:
			if stdin != nil {
				_, _ = stdin.Write(content.Stdin)
			}
		case *pb.ExecFrame_StdinClose:
			if stdin != nil {
				stdin.Close()
			}
		case *pb.ExecFrame_Signal:
			_ = syscall.Kill(-command.Process.Pid, syscall.Signal(content.Signal.Number))
		}
	}
}

func (g *guest) finish(out *sender, waited error, command *exec.Cmd, began time.Time) error {
	g.touch()
	var failed *exec.ExitError
	if waited != nil && !errors.As(waited, &failed) {
		return waited
	}
	exit := &pb.ExecExit{
		Code:           int32(command.ProcessState.ExitCode()),
		OutputComplete: true,
		DurationMs:     uint64(time.Since(began).Milliseconds()),
	}
	if ending := command.ProcessState.Sys().(syscall.WaitStatus); ending.Signaled() {
		exit.Signal = uint32(ending.Signal())
		exit.Code = 128 + int32(ending.Signal())
	}
	return out.send(&pb.ExecFrame{Frame: &pb.ExecFrame_Exit{Exit: exit}})
}

func pump(source io.Reader, out *sender, frameOf func([]byte) *pb.ExecFrame) {
	buffer := make([]byte, outputChunkBytes)
	for {
		count, err := source.Read(buffer)
		if count > 0 && out.send(frameOf(buffer[:count])) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

func startedFrame(pid int) *pb.ExecFrame {
	return &pb.ExecFrame{Frame: &pb.ExecFrame_Started{Started: &pb.ExecStarted{Pid: uint32(pid)}}}
}

func stdoutFrame(bytes []byte) *pb.ExecFrame {
	return &pb.ExecFrame{Frame: &pb.ExecFrame_Stdout{Stdout: bytes}}
}

func stderrFrame(bytes []byte) *pb.ExecFrame {
	return &pb.ExecFrame{Frame: &pb.ExecFrame_Stderr{Stderr: bytes}}
}
