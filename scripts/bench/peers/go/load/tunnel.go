package load

import (
	"io"
	"net"

	"golang.org/x/crypto/ssh"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

// tunnel is a connection through a target to a port on its side.
type tunnel interface {
	io.ReadWriteCloser
	// CloseWrite ends the direction to the port.
	CloseWrite() error
}

// serve listens on a free port of the loopback, and hands each connection to a server.
func serve(server func(net.Conn)) (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				server(connection)
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// throughTunnel carries bytes from a port, or to one.
func throughTunnel(target target, job job) (operation, error) {
	chunk := make([]byte, job.ChunkBytes)
	out := job.Kind == "tunnel-out"
	port, err := serve(func(connection net.Conn) {
		if out {
			for left := job.TotalBytes; left > 0; left -= int64(len(chunk)) {
				if _, err := connection.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
					return
				}
			}
			return
		}
		// It says that all has come.
		io.CopyBuffer(&counter{}, connection, make([]byte, 256*1024))
		connection.Write([]byte("x"))
	})
	if err != nil {
		return nil, err
	}
	return func(int) (int64, error) {
		through, err := target.connect(port)
		if err != nil {
			return 0, err
		}
		defer through.Close()
		if !out {
			for left := job.TotalBytes; left > 0; left -= int64(len(chunk)) {
				if _, err := through.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
					return 0, err
				}
			}
		}
		if err := through.CloseWrite(); err != nil {
			return 0, err
		}
		got, err := io.CopyBuffer(&counter{}, through, make([]byte, 256*1024))
		if !out {
			got = job.TotalBytes
		}
		return got, err
	}, nil
}

// tunnelEcho is an open tunnel to a port that gives back what it gets.
type tunnelEcho struct{ tunnel }

func echoThroughTunnel(target target) (echoSession, error) {
	port, err := serve(func(connection net.Conn) { io.Copy(connection, connection) })
	if err != nil {
		return nil, err
	}
	through, err := target.connect(port)
	return tunnelEcho{through}, err
}

func (e tunnelEcho) roundTrip() error {
	if _, err := e.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(e, make([]byte, 1))
	return err
}

func (e tunnelEcho) end() error {
	defer e.Close()
	if err := e.CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, e)
	return err
}

func (t *sshTarget) connect(port int) (tunnel, error) {
	channel, requests, err := t.client.OpenChannel("direct-tcpip", ssh.Marshal(struct {
		Host       string
		Port       uint32
		Originator string
		From       uint32
	}{"127.0.0.1", uint32(port), "127.0.0.1", 0}))
	if err != nil {
		return nil, err
	}
	go ssh.DiscardRequests(requests)
	return channel, nil
}

const dataField = 3

// grpcTunnel sends as the agent's windows allow, and leaves it to HTTP/2 to hold the agent back.
type grpcTunnel struct {
	stream  grpc.ClientStream
	cancel  func()
	windows chan uint32
	data    chan []byte
	rest    []byte
	room    int64
	failure error
}

func (t *grpcTarget) connect(port int) (tunnel, error) {
	stream, cancel, err := t.openAt("/svc.guest.v1alpha1.Tunnel/Open")
	if err != nil {
		return nil, err
	}
	through := &grpcTunnel{stream: stream, cancel: cancel, windows: make(chan uint32, 64), data: make(chan []byte, 4)}
	go through.receive()
	target := &pb.TunnelOpen{Target: &pb.TunnelOpen_Port{Port: uint32(port)}}
	err = stream.SendMsg(encoded(&pb.TunnelFrame{Frame: &pb.TunnelFrame_Open{Open: target}}))
	return through, err
}

func (t *grpcTunnel) receive() {
	defer close(t.data)
	defer close(t.windows)
	for {
		var raw rawMessage
		if err := t.stream.RecvMsg(&raw); err != nil {
			t.failure = err
			return
		}
		bytes := raw.data.Materialize()
		raw.free()
		// A large frame is nothing but data behind its tag and length.
		if payload, ok := dataOf(bytes); ok {
			t.data <- payload
			continue
		}
		var frame pb.TunnelFrame
		if err := proto.Unmarshal(bytes, &frame); err != nil {
			t.failure = err
			return
		}
		switch {
		case frame.GetOpened() != nil:
			t.windows <- frame.GetOpened().WindowBytes
		case frame.GetWindow() != nil:
			t.windows <- frame.GetWindow().Bytes
		}
	}
}

func (t *grpcTunnel) Read(target []byte) (int, error) {
	if len(t.rest) == 0 {
		next, ok := <-t.data
		if !ok {
			return 0, t.failure
		}
		t.rest = next
	}
	count := copy(target, t.rest)
	t.rest = t.rest[count:]
	return count, nil
}

// What a frame counts beside its bytes.
const frameOverhead = 64

func (t *grpcTunnel) Write(bytes []byte) (int, error) {
	for at := 0; at < len(bytes); {
		for t.room <= frameOverhead {
			more, ok := <-t.windows
			if !ok {
				return at, t.failure
			}
			t.room += int64(more)
		}
		size := min(len(bytes)-at, int(t.room-frameOverhead))
		frame := &pb.TunnelFrame{Frame: &pb.TunnelFrame_Data{Data: bytes[at : at+size]}}
		if err := t.stream.SendMsg(encoded(frame)); err != nil {
			return at, err
		}
		at += size
		t.room -= int64(size + frameOverhead)
	}
	return len(bytes), nil
}

func (t *grpcTunnel) CloseWrite() error {
	// Windows may come to the very end.
	go func() {
		for range t.windows {
		}
	}()
	end := &pb.TunnelFrame{Frame: &pb.TunnelFrame_End{End: &pb.TunnelEnd{}}}
	return t.stream.SendMsg(encoded(end))
}

func (t *grpcTunnel) Close() error {
	t.cancel()
	return nil
}

// dataOf returns the payload of a data frame; false for any other.
func dataOf(message []byte) ([]byte, bool) {
	if len(message) == 0 || message[0] != dataField<<3|2 {
		return nil, false
	}
	at := 1
	for message[at]&0x80 != 0 {
		at++
	}
	return message[at+1:], true
}
