package load

import (
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/grpc/mem"
)

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
