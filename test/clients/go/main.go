// Command client makes the calls that its standard input asks for with grpc-go (../program.ts has the protocol).
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	open = iota
	message
	end
	cancel
)

// Hands messages over as they are. Without a name, the content type is that of generated code.
type raw struct{}

func (raw) Name() string                            { return "" }
func (raw) Marshal(value any) ([]byte, error)       { return *value.(*[]byte), nil }
func (raw) Unmarshal(bytes []byte, value any) error { *value.(*[]byte) = bytes; return nil }

// A call that has begun, or that could not.
type call struct {
	stream grpc.ClientStream
	giveUp context.CancelFunc
}

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(security()))
	if err != nil {
		log.Fatal(err)
	}
	calls := map[uint32]call{}
	input := bufio.NewReader(os.Stdin)
	for {
		var head [9]byte
		if _, err := io.ReadFull(input, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-5)
		if _, err := io.ReadFull(input, body); err != nil {
			return
		}
		id := binary.BigEndian.Uint32(head[4:])
		if head[8] == open {
			if call, err := begin(connection, strings.Split(string(body), "\n")); err != nil {
				finish(id, err)
			} else {
				calls[id] = call
				go receive(id, call.stream)
			}
			continue
		}
		call, isOpen := calls[id]
		if !isOpen {
			continue
		}
		// A failure to send has its reason in the answer.
		switch head[8] {
		case message:
			_ = call.stream.SendMsg(&body)
		case end:
			_ = call.stream.CloseSend()
		case cancel:
			call.giveUp()
		}
	}
}

func security() credentials.TransportCredentials {
	authority, hasTls := os.LookupEnv("CA")
	if !hasTls {
		return insecure.NewCredentials()
	}
	own, err := tls.X509KeyPair([]byte(os.Getenv("CERTIFICATE")), []byte(os.Getenv("KEY")))
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority))
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own},
		RootCAs:      roots,
		ServerName:   os.Getenv("SERVER_NAME"),
		MinVersion:   tls.VersionTLS13,
	})
}

// Its words: how many requests and responses there are, the path, the token, and the milliseconds it may take.
func begin(connection *grpc.ClientConn, words []string) (call, error) {
	ctx := metadata.AppendToOutgoingContext(context.Background(), "svc-instance-token", words[2])
	ctx, giveUp := context.WithCancel(ctx)
	if timeoutMs, err := strconv.Atoi(words[3]); err == nil {
		ctx, giveUp = context.WithTimeout(ctx, time.Duration(timeoutMs)*time.Millisecond)
	}
	kind := &grpc.StreamDesc{
		ClientStreams: strings.HasPrefix(words[0], "stream"),
		ServerStreams: strings.HasSuffix(words[0], "stream"),
	}
	stream, err := connection.NewStream(ctx, kind, words[1], grpc.ForceCodec(raw{}))
	return call{stream, giveUp}, err
}

func receive(id uint32, stream grpc.ClientStream) {
	for {
		var bytes []byte
		if err := stream.RecvMsg(&bytes); err != nil {
			finish(id, err)
			return
		}
		write(id, message, bytes)
	}
}

// Tells the status: its code, its message and its bytes with all details.
func finish(id uint32, err error) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	answer := status.Convert(err)
	details, err := proto.Marshal(answer.Proto())
	if err != nil {
		log.Fatal(err)
	}
	body := binary.BigEndian.AppendUint16([]byte{byte(answer.Code())}, uint16(len(answer.Message())))
	write(id, end, append(append(body, answer.Message()...), details...))
}

var output sync.Mutex

func write(id uint32, kind byte, body []byte) {
	output.Lock()
	defer output.Unlock()
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)+5))
	frame = append(binary.BigEndian.AppendUint32(frame, id), kind)
	if _, err := os.Stdout.Write(append(frame, body...)); err != nil {
		log.Fatal(err)
	}
}
