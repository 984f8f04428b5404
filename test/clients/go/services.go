package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	pb "guestagent.test/client/gen/svc/guest/v1alpha1"
)

// The services beside GuestAgent.

func folders(ctx context.Context, guest guest) error {
	tree := pb.NewFileTreeClient(guest.connection)
	path := filepath.Join(guest.folder, "go-folder")
	before, after := filepath.Join(path, "before"), filepath.Join(path, "after")
	if _, err := tree.MakeFolder(ctx, &pb.MakeFolderRequest{Path: []byte(path)}); err != nil {
		return err
	}
	if _, err := write(ctx, guest, []byte("content"), &pb.WriteFileHeader{Path: before}); err != nil {
		return err
	}
	if _, err := tree.Rename(ctx, &pb.RenameRequest{Path: []byte(before), NewPath: []byte(after)}); err != nil {
		return err
	}
	listing, err := tree.List(ctx, &pb.ListRequest{Path: []byte(path)})
	if err != nil {
		return err
	}
	var names []string
	for {
		batch, err := listing.Recv()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		for _, entry := range batch.Entries {
			names = append(names, string(entry.Name))
		}
	}
	gone, err := tree.Remove(ctx, &pb.RemoveRequest{Path: []byte(path), Recursive: true})
	if err != nil {
		return err
	}
	return same([]any{[]string{"after"}, uint64(2)}, []any{names, gone.Removed})
}

func tunnel(ctx context.Context, guest guest) error {
	call, err := pb.NewTunnelClient(guest.connection).Open(ctx)
	if err != nil {
		return err
	}
	target := &pb.TunnelOpen_Path{Path: filepath.Join(guest.folder, "echo.sock")}
	err = errors.Join(
		call.Send(&pb.TunnelFrame{Frame: &pb.TunnelFrame_Open{Open: &pb.TunnelOpen{Target: target}}}),
		call.Send(&pb.TunnelFrame{Frame: &pb.TunnelFrame_Data{Data: []byte("hello")}}),
		call.Send(&pb.TunnelFrame{Frame: &pb.TunnelFrame_End{End: &pb.TunnelEnd{}}}),
		call.CloseSend(),
	)
	if err != nil {
		return err
	}
	var got []byte
	isEnded := false
	for {
		frame, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return same([]any{"hello", true}, []any{string(got), isEnded})
		} else if err != nil {
			return err
		}
		got = append(got, frame.GetData()...)
		isEnded = isEnded || frame.GetEnd() != nil
	}
}
