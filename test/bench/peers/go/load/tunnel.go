package load

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// What a connection asks for in its first eight bytes: so many bytes, or one of these.
const (
	askedToCount = 0
	askedToEcho  = -1
)

// serveBehind listens where the tunnels lead to. It goes on for as long as the client runs.
func serveBehind(port int) (operation, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(connection.(*net.TCPConn))
		}
	}()
	return func(int) (int64, error) { return 0, nil }, nil
}

func answer(connection *net.TCPConn) {
	defer connection.Close()
	var head [8]byte
	if _, err := io.ReadFull(connection, head[:]); err != nil {
		return
	}
	switch asked := int64(binary.BigEndian.Uint64(head[:])); asked {
	case askedToEcho:
		io.CopyBuffer(written{connection}, read{connection}, make([]byte, 4096))
	case askedToCount:
		got, _ := io.CopyBuffer(&counter{}, read{connection}, make([]byte, largeBytes))
		connection.Write(binary.BigEndian.AppendUint64(nil, uint64(got)))
	default:
		sendZeros(connection, asked, largeBytes/4)
	}
}

const largeBytes = 256 * 1024

// read and written hide that a connection could be spliced: what is measured carries its bytes through both.
type read struct{ io.Reader }
type written struct{ io.Writer }

type counter struct{ bytes int64 }

func (c *counter) Write(bytes []byte) (int, error) {
	c.bytes += int64(len(bytes))
	return len(bytes), nil
}

func sendZeros(to io.Writer, totalBytes int64, chunkBytes int) error {
	chunk := make([]byte, chunkBytes)
	for left := totalBytes; left > 0; left -= int64(chunkBytes) {
		if _, err := to.Write(chunk[:min(left, int64(chunkBytes))]); err != nil {
			return err
		}
	}
	return nil
}

func ask(port int, what int64) (*net.TCPConn, error) {
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	_, err = connection.Write(binary.BigEndian.AppendUint64(nil, uint64(what)))
	return connection.(*net.TCPConn), err
}

// outOfTunnel takes bytes from behind a tunnel that begins at a port here.
func outOfTunnel(job job) operation {
	return func(int) (int64, error) {
		through, err := ask(job.Port, job.TotalBytes)
		if err != nil {
			return 0, err
		}
		defer through.Close()
		got, err := io.CopyBuffer(&counter{}, read{through}, make([]byte, largeBytes))
		if err == nil && got != job.TotalBytes {
			err = fmt.Errorf("%d of %d bytes came", got, job.TotalBytes)
		}
		return got, err
	}
}

// intoTunnel sends bytes, and is done when all have come.
func intoTunnel(job job) operation {
	return func(int) (int64, error) {
		through, err := ask(job.Port, askedToCount)
		if err != nil {
			return 0, err
		}
		defer through.Close()
		if err := sendZeros(through, job.TotalBytes, job.ChunkBytes); err != nil {
			return 0, err
		}
		if err := through.CloseWrite(); err != nil {
			return 0, err
		}
		var said [8]byte
		if _, err := io.ReadFull(through, said[:]); err != nil {
			return 0, err
		}
		got := int64(binary.BigEndian.Uint64(said[:]))
		if got != job.TotalBytes {
			return got, fmt.Errorf("%d of %d bytes came", got, job.TotalBytes)
		}
		return got, nil
	}
}

// tunnelEcho is a connection to an echo behind a tunnel.
type tunnelEcho struct{ *net.TCPConn }

func (e tunnelEcho) roundTrip() error { return exchange(e, e) }

// exchange sends a byte and waits for one.
func exchange(to io.Writer, from io.Reader) error {
	if _, err := to.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(from, make([]byte, 1))
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
