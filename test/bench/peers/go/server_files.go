package main

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

const fileChunkBytes = 256 * 1024

func (g *guest) ReadFile(request *pb.ReadFileRequest, stream grpc.ServerStreamingServer[pb.FileChunk]) error {
	g.touch()
	file, err := os.Open(request.Path)
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return status.Error(codes.FailedPrecondition, "not a regular file")
	}
	attributes := describe(info)
	buffer := make([]byte, fileChunkBytes)
	for {
		count, err := io.ReadFull(file, buffer)
		if count > 0 || attributes != nil {
			if err := stream.Send(&pb.FileChunk{Stat: attributes, Data: buffer[:count]}); err != nil {
				return err
			}
			attributes = nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func describe(info os.FileInfo) *pb.StatPathResponse {
	stat := info.Sys().(*syscall.Stat_t)
	return &pb.StatPathResponse{
		Type:  pb.FileType_FILE_TYPE_REGULAR,
		Size:  uint64(stat.Size),
		Mode:  stat.Mode & 0o7777,
		Uid:   stat.Uid,
		Gid:   stat.Gid,
		Mtime: timestamppb.New(info.ModTime()),
		Inode: stat.Ino,
		Links: uint64(stat.Nlink),
	}
}

// WriteFile is atomic and durable as the agent's is: a temporary file, its sum, owner and mode, fsync, rename, fsync of
// the directory.
func (g *guest) WriteFile(stream grpc.ClientStreamingServer[pb.WriteFileRequest, pb.WriteFileResponse]) error {
	g.touch()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return status.Error(codes.InvalidArgument, "the first message must be header")
	}
	file, err := os.CreateTemp(filepath.Dir(header.Path), ".peer-*.tmp")
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	defer os.Remove(file.Name())
	defer file.Close()
	written, sum, err := g.receive(file, stream)
	if err != nil {
		return err
	}
	if err := place(file, header.Path); err != nil {
		return err
	}
	return stream.SendAndClose(&pb.WriteFileResponse{BytesWritten: uint64(written), Sha256: sum})
}

func (g *guest) receive(file *os.File, stream grpc.ClientStreamingServer[pb.WriteFileRequest, pb.WriteFileResponse]) (int64, []byte, error) {
	hash := sha256.New()
	written := int64(0)
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return written, hash.Sum(nil), nil
		}
		if err != nil {
			return 0, nil, err
		}
		data := message.GetData()
		if _, err := file.Write(data); err != nil {
			return 0, nil, status.Error(codes.ResourceExhausted, err.Error())
		}
		hash.Write(data)
		written += int64(len(data))
		g.touch()
	}
}

func place(file *os.File, path string) error {
	if err := file.Chown(os.Getuid(), os.Getgid()); err != nil {
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}
