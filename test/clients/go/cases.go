package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "guestagent.test/client/gen/svc/guest/v1alpha1"
)

const (
	fileBytes  = 8 << 20
	chunkBytes = 256 << 10
	sigusr1    = 10
)

// The suite's cases by the names of its columns; the duties come last because they end the connection.
var cases = []struct {
	name string
	run  func(context.Context, guest) error
}{
	{"health", health},
	{"exec", execWithInput},
	{"terminal", terminal},
	{"signal", signal},
	{"files", files},
	{"stat", stat},
	{"folders", folders},
	{"tunnel", tunnel},
	{"hook", hook},
	{"errors", errorsWithDetails},
	{"token", token},
	{"cancel", cancel},
	{"deadline", deadline},
	{"duties", duties},
}

func health(ctx context.Context, guest guest) error {
	health, err := guest.agent.Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return err
	}
	return same([]any{true, true, true}, []any{health.Alive, health.Ready, health.GuestTime.IsValid()})
}

func execWithInput(ctx context.Context, guest guest) error {
	args := []string{"sh", "-c", "tr a-z A-Z; echo careful >&2; exit 3"}
	command, err := start(ctx, guest, &pb.ExecStart{Args: args, Stdin: true})
	if err != nil {
		return err
	}
	err = errors.Join(command.write("hello "), command.write("sandbox"), command.call.CloseSend(), command.wait())
	if err != nil {
		return err
	}
	return same(
		[]any{"HELLO SANDBOX", "careful\n", int32(3), true},
		[]any{command.stdout.String(), command.stderr.String(), command.exit.Code, command.exit.OutputComplete},
	)
}

func terminal(ctx context.Context, guest guest) error {
	command, err := start(ctx, guest, &pb.ExecStart{
		Args:     []string{"sh", "-c", "test -t 0 && stty size && read line && stty size"},
		Terminal: &pb.Terminal{Cols: 100, Rows: 30},
	})
	if err != nil {
		return err
	}
	if err := command.until("30 100"); err != nil {
		return err
	}
	err = errors.Join(command.resize(120, 40), command.write("go\n"), command.until("40 120"), command.wait())
	if err != nil {
		return err
	}
	return same(int32(0), command.exit.Code)
}

func signal(ctx context.Context, guest guest) error {
	script := "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done"
	command, err := start(ctx, guest, &pb.ExecStart{Args: []string{"sh", "-c", script}})
	if err != nil {
		return err
	}
	if err := errors.Join(command.until("ready"), command.signal(sigusr1), command.wait()); err != nil {
		return err
	}
	return same([]any{true, int32(7)}, []any{strings.Contains(command.stdout.String(), "caught"), command.exit.Code})
}

func files(ctx context.Context, guest guest) error {
	path := filepath.Join(guest.folder, "go", "content")
	content := make([]byte, fileBytes)
	rand.Read(content)
	sum := sha256.Sum256(content)
	written, err := write(ctx, guest, content, &pb.WriteFileHeader{Path: path, Sha256: sum[:], CreateParents: true})
	if err != nil {
		return err
	}
	call, err := guest.agent.ReadFile(ctx, &pb.ReadFileRequest{Path: path})
	if err != nil {
		return err
	}
	read := sha256.New()
	for {
		chunk, err := call.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		read.Write(chunk.Data)
	}
	return same([]any{uint64(fileBytes), sum[:], sum[:]}, []any{written.BytesWritten, written.Sha256, read.Sum(nil)})
}

func write(ctx context.Context, guest guest, content []byte, header *pb.WriteFileHeader) (*pb.WriteFileResponse, error) {
	call, err := guest.agent.WriteFile(ctx)
	if err != nil {
		return nil, err
	}
	// A failure to send has its reason in the answer.
	_ = call.Send(&pb.WriteFileRequest{Message: &pb.WriteFileRequest_Header{Header: header}})
	for len(content) > 0 {
		size := min(chunkBytes, len(content))
		_ = call.Send(&pb.WriteFileRequest{Message: &pb.WriteFileRequest_Data{Data: content[:size]}})
		content = content[size:]
	}
	return call.CloseAndRecv()
}

func stat(ctx context.Context, guest guest) error {
	path := filepath.Join(guest.folder, "go-attributes")
	header := &pb.WriteFileHeader{Path: path, Mode: proto.Uint32(0o604)}
	if _, err := write(ctx, guest, []byte("twelve bytes"), header); err != nil {
		return err
	}
	answer, err := guest.agent.StatPath(ctx, &pb.StatPathRequest{Path: path})
	if err != nil {
		return err
	}
	return same(
		[]any{pb.FileType_FILE_TYPE_REGULAR, uint64(12), uint32(0o604), true},
		[]any{answer.Type, answer.Size, answer.Mode, answer.Mtime.IsValid()},
	)
}

func hook(ctx context.Context, guest guest) error {
	before, err := guest.agent.RunHook(ctx, &pb.RunHookRequest{Kind: pb.HookKind_HOOK_KIND_PRE_SNAPSHOT})
	if err != nil {
		return err
	}
	after, err := guest.agent.RunHook(ctx, &pb.RunHookRequest{Kind: pb.HookKind_HOOK_KIND_POST_RESTORE})
	if err != nil {
		return err
	}
	return same(
		[]any{true, int32(3), "at rest\n", "a word\n", false},
		[]any{before.Ran, before.ExitCode, before.StdoutTail, before.StderrTail, after.Ran},
	)
}

func errorsWithDetails(ctx context.Context, guest guest) error {
	command, err := start(ctx, guest, &pb.ExecStart{Args: []string{"no-such-command"}})
	if err != nil {
		return err
	}
	path := filepath.Join(guest.folder, "no", "such", "file")
	_, noPath := guest.agent.StatPath(ctx, &pb.StatPathRequest{Path: path})
	sum := sha256.Sum256([]byte("else"))
	header := &pb.WriteFileHeader{Path: filepath.Join(guest.folder, "f"), Sha256: sum[:]}
	_, corrupt := write(ctx, guest, []byte("this"), header)
	return errors.Join(
		failed(command.wait(), codes.NotFound, "EXEC_NOT_FOUND", map[string]string{"errno": "ENOENT"}),
		failed(noPath, codes.NotFound, "PATH_NOT_FOUND", map[string]string{"path": path, "errno": "ENOENT"}),
		failed(corrupt, codes.DataLoss, "CHECKSUM_MISMATCH", nil),
	)
}

func token(ctx context.Context, guest guest) error {
	_, err := guest.agent.Health(withToken(ctx, "not-the-token-0123456789"), &pb.HealthRequest{})
	return failed(err, codes.Unauthenticated, "UNAUTHENTICATED", nil)
}

func cancel(ctx context.Context, guest guest) error {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	command, err := start(ctx, guest, &pb.ExecStart{Args: []string{"sleep", guest.pause}})
	if err != nil {
		return err
	}
	if err := command.next(); err != nil {
		return err
	}
	giveUp()
	return same(codes.Canceled, status.Code(command.wait()))
}

func deadline(ctx context.Context, guest guest) error {
	ctx, giveUp := context.WithTimeout(ctx, 500*time.Millisecond)
	defer giveUp()
	command, err := start(ctx, guest, &pb.ExecStart{Args: []string{"sleep", guest.pause}})
	if err != nil {
		return err
	}
	return same(codes.DeadlineExceeded, status.Code(command.wait()))
}

func duties(ctx context.Context, guest guest) error {
	entropy := make([]byte, 64)
	rand.Read(entropy)
	done, err := guest.agent.RunRestoreDuties(ctx, &pb.RestoreDutiesRequest{Entropy: entropy})
	if err != nil {
		return err
	}
	again, err := guest.again()
	if err != nil {
		return err
	}
	_, refused := pb.NewGuestAgentClient(again).RunRestoreDuties(ctx, &pb.RestoreDutiesRequest{})
	return errors.Join(
		same([]any{uint32(64), false}, []any{done.EntropyBytesMixed, done.ClockStepped}),
		same(done.Degraded == "", done.EntropyCredited),
		failed(refused, codes.InvalidArgument, "INVALID_FIELD", map[string]string{"field": "entropy"}),
	)
}

func same(expected, actual any) error {
	if reflect.DeepEqual(expected, actual) {
		return nil
	}
	return fmt.Errorf("got %v instead of %v", actual, expected)
}

// A call must have failed in this way, with these entries among its metadata.
func failed(err error, code codes.Code, reason string, metadata map[string]string) error {
	answer := status.Convert(err)
	if answer.Code() != code {
		return fmt.Errorf("got %v instead of %v: %s", answer.Code(), code, answer.Message())
	}
	for _, detail := range answer.Details() {
		info, isInfo := detail.(*errdetails.ErrorInfo)
		if !isInfo || info.Domain != "svc.guest" || info.Reason != reason {
			continue
		}
		for name, value := range metadata {
			if info.Metadata[name] != value {
				return fmt.Errorf("metadata %v has no %s %q", info.Metadata, name, value)
			}
		}
		return nil
	}
	return fmt.Errorf("no ErrorInfo with reason %s in %v", reason, answer.Details())
}
