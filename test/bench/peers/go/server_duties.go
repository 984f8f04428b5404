package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

// RNDADDENTROPY of random(4): _IOW('R', 0x03, int[2]).
const addEntropy = 0x40085203

// RunRestoreDuties credits the entropy and sets the clock.
func (g *guest) RunRestoreDuties(_ context.Context, request *pb.RestoreDutiesRequest) (*pb.RestoreDutiesResponse, error) {
	if len(request.GetEntropy()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "entropy is empty")
	}
	if err := credit(request.GetEntropy()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	response := &pb.RestoreDutiesResponse{EntropyBytesMixed: uint32(len(request.GetEntropy())), EntropyCredited: true}
	if request.GetHostTime() != nil {
		now := request.GetHostTime().AsTime()
		response.ClockDriftMs = time.Since(now).Milliseconds()
		value := syscall.NsecToTimeval(now.UnixNano())
		if err := syscall.Settimeofday(&value); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		response.ClockStepped = true
	}
	return response, nil
}

// credit hands the kernel struct rand_pool_info: entropy in bits, size in bytes, and the bytes.
func credit(entropy []byte) error {
	device, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	info := binary.NativeEndian.AppendUint32(nil, uint32(len(entropy)*8))
	info = append(binary.NativeEndian.AppendUint32(info, uint32(len(entropy))), entropy...)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, device.Fd(), addEntropy, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return errno
	}
	return nil
}

// RunHook runs the command that SVC_HOOKS_SPEC has for the kind.
func (g *guest) RunHook(ctx context.Context, request *pb.RunHookRequest) (*pb.RunHookResponse, error) {
	var hooks map[string]struct{ Args []string }
	if err := json.Unmarshal([]byte(os.Getenv("SVC_HOOKS_SPEC")), &hooks); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	name := "pre_snapshot"
	if request.GetKind() == pb.HookKind_HOOK_KIND_POST_RESTORE {
		name = "post_restore"
	}
	hook, has := hooks[name]
	if !has {
		return &pb.RunHookResponse{}, nil
	}
	command := exec.CommandContext(ctx, hook.Args[0], hook.Args[1:]...)
	if err := command.Run(); err != nil && command.ProcessState == nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &pb.RunHookResponse{Ran: true, ExitCode: int32(command.ProcessState.ExitCode())}, nil
}
