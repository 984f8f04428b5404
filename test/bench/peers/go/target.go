package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

const (
	schema         = "/svc.guest.v1alpha1."
	chunkDataField = 2
)

var bothWays = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// target speaks the schema. It neither decodes nor encodes payloads: the client's own work is not to be measured.
type target struct {
	connection *grpc.ClientConn
	ctx        context.Context
}

func dialTarget(address, directory, token string) (*target, error) {
	secure, err := tlsConfig(directory, "client")
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(secure)),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(4*windowBytes),
	)
	if err != nil {
		return nil, err
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "svc-instance-token", token)
	return &target{connection: connection, ctx: ctx}, nil
}

// Large enough that the client never holds the server back.
const windowBytes = 4 * 1024 * 1024

func (t *target) close() { t.connection.Close() }

func (t *target) ping() error {
	var raw rawMessage
	if err := t.connection.Invoke(t.ctx, schema+"GuestAgent/Health", encoded(&pb.HealthRequest{}), &raw); err != nil {
		return err
	}
	defer raw.free()
	return proto.Unmarshal(raw.data.Materialize(), &pb.HealthResponse{})
}

// open begins a call of SERVICE/METHOD.
func (t *target) open(method string) (grpc.ClientStream, context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(t.ctx)
	stream, err := t.connection.NewStream(ctx, bothWays, schema+method)
	if err != nil {
		cancel()
	}
	return stream, cancel, err
}

// ask makes a call with one request, and calls visit with every field of its answers.
func (t *target) ask(method string, request proto.Message, visit func(number int, length int64)) error {
	stream, cancel, err := t.open(method)
	if err != nil {
		return err
	}
	defer cancel()
	if err := stream.SendMsg(encoded(request)); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var raw rawMessage
		if err := stream.RecvMsg(&raw); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		err := raw.fields(visit)
		raw.free()
		if err != nil {
			return err
		}
	}
}

func (t *target) readFile(path string) (total int64, err error) {
	err = t.ask("GuestAgent/ReadFile", &pb.ReadFileRequest{Path: path}, func(number int, length int64) {
		if number == chunkDataField {
			total += length
		}
	})
	return total, err
}

func (t *target) writeFile(path string, totalBytes int64, chunkBytes int) error {
	stream, cancel, err := t.open("GuestAgent/WriteFile")
	if err != nil {
		return err
	}
	defer cancel()
	header := &pb.WriteFileHeader{Path: path}
	first := &pb.WriteFileRequest{Message: &pb.WriteFileRequest_Header{Header: header}}
	if err := stream.SendMsg(encoded(first)); err != nil {
		return err
	}
	chunk := func(size int) proto.Message {
		return &pb.WriteFileRequest{Message: &pb.WriteFileRequest_Data{Data: make([]byte, size)}}
	}
	if err := sendAll(stream, totalBytes, chunkBytes, chunk); err != nil {
		return err
	}
	var raw rawMessage
	if err := stream.RecvMsg(&raw); err != nil {
		return err
	}
	defer raw.free()
	var response pb.WriteFileResponse
	if err := proto.Unmarshal(raw.data.Materialize(), &response); err != nil {
		return err
	}
	if response.BytesWritten != uint64(totalBytes) {
		return fmt.Errorf("%d of %d bytes were written", response.BytesWritten, totalBytes)
	}
	return atEnd(stream.RecvMsg(&rawMessage{}))
}

// sendAll sends the same full message again and again, and what is left over at the end.
func sendAll(stream grpc.ClientStream, totalBytes int64, chunkBytes int, chunk func(size int) proto.Message) error {
	full := encoded(chunk(chunkBytes))
	for left := totalBytes; left > 0; left -= int64(chunkBytes) {
		message := full
		if left < int64(chunkBytes) {
			message = encoded(chunk(int(left)))
		}
		if err := stream.SendMsg(message); err != nil {
			if err == io.EOF {
				return stream.RecvMsg(&rawMessage{})
			}
			return err
		}
	}
	return stream.CloseSend()
}

func encoded(message proto.Message) mem.BufferSlice {
	bytes, err := proto.Marshal(message)
	if err != nil {
		panic(err)
	}
	return mem.BufferSlice{mem.SliceBuffer(bytes)}
}

// rawCodec passes encoded messages through.
type rawCodec struct{}

// rawMessage is a message as it came; to be freed.
type rawMessage struct{ data mem.BufferSlice }

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	data, ok := message.(mem.BufferSlice)
	if !ok {
		return nil, fmt.Errorf("not encoded: %T", message)
	}
	return data, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	raw, ok := message.(*rawMessage)
	if !ok {
		return fmt.Errorf("not raw: %T", message)
	}
	data.Ref()
	raw.data = data
	return nil
}

func (m *rawMessage) free() { m.data.Free() }

// fields calls visit with every length-delimited field; the schema's messages on the fast path have no others.
func (m *rawMessage) fields(visit func(number int, length int64)) error {
	reader := m.data.Reader()
	defer reader.Close()
	for {
		tag, err := binary.ReadUvarint(reader)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if tag&7 != 2 {
			return fmt.Errorf("unexpected wire type %d", tag&7)
		}
		length, err := binary.ReadUvarint(reader)
		if err != nil {
			return err
		}
		visit(int(tag>>3), int64(length))
		if _, err := reader.Discard(int(length)); err != nil {
			return err
		}
	}
}
