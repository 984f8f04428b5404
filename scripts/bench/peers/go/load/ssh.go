package load

import (
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// As large as OpenSSH takes them.
const sftpPacketBytes = 255 * 1024

// sshTarget is one connection that all sessions share.
type sshTarget struct {
	unsupported
	client *ssh.Client
	files  *sftp.Client
}

func dialSsh(address, keyFile string) (target, error) {
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, err
	}
	self, err := user.Current()
	if err != nil {
		return nil, err
	}
	client, err := ssh.Dial("tcp", address, &ssh.ClientConfig{
		User:            self.Username,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // The server was started beside us, on the loopback.
	})
	if err != nil {
		return nil, err
	}
	return &sshTarget{client: client}, nil
}

func (t *sshTarget) close() { t.client.Close() }

func (t *sshTarget) ping() error {
	_, _, err := t.client.SendRequest("keepalive@openssh.com", true, nil)
	return err
}

type counter struct{ bytes int64 }

func (c *counter) Write(bytes []byte) (int, error) {
	c.bytes += int64(len(bytes))
	return len(bytes), nil
}

func (t *sshTarget) run(command []string, inTerminal bool) (int64, error) {
	session, err := t.client.NewSession()
	if err != nil {
		return 0, err
	}
	defer session.Close()
	if inTerminal {
		if err := session.RequestPty("xterm", 24, 80, ssh.TerminalModes{}); err != nil {
			return 0, err
		}
	}
	output := &counter{}
	session.Stdout = output
	err = session.Run(strings.Join(command, " "))
	return output.bytes, err
}

func (t *sshTarget) feed(command []string, totalBytes int64, chunkBytes int) error {
	session, err := t.client.NewSession()
	if err != nil {
		return err
	}
	defer session.Close()
	stdin, err := session.StdinPipe()
	if err != nil {
		return err
	}
	if err := session.Start(strings.Join(command, " ")); err != nil {
		return err
	}
	if err := sendZeros(stdin, totalBytes, chunkBytes); err != nil {
		return err
	}
	if err := stdin.Close(); err != nil {
		return err
	}
	return session.Wait()
}

type sshEcho struct {
	session *ssh.Session
	stdin   io.WriteCloser
	stdout  io.Reader
}

func (t *sshTarget) echo(command []string) (echoSession, error) {
	session, err := t.client.NewSession()
	if err != nil {
		return nil, err
	}
	stdin, err := session.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &sshEcho{session, stdin, stdout}, session.Start(strings.Join(command, " "))
}

func (e *sshEcho) roundTrip() error {
	return exchange(e.stdin, e.stdout)
}

func (e *sshEcho) end() error {
	if err := e.stdin.Close(); err != nil {
		return err
	}
	return e.session.Wait()
}

func (t *sshTarget) sftp() (*sftp.Client, error) {
	if t.files != nil {
		return t.files, nil
	}
	files, err := sftp.NewClient(t.client, sftp.MaxPacketUnchecked(sftpPacketBytes), sftp.UseConcurrentWrites(true))
	t.files = files
	return files, err
}

func (t *sshTarget) readFile(path string) (int64, error) {
	files, err := t.sftp()
	if err != nil {
		return 0, err
	}
	file, err := files.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return file.WriteTo(io.Discard)
}

// writeFile does less than the others: no temporary file, no sum, no fsync.
func (t *sshTarget) writeFile(path string, totalBytes int64, _ int, _ bool) error {
	files, err := t.sftp()
	if err != nil {
		return err
	}
	file, err := files.Create(path)
	if err != nil {
		return err
	}
	written, err := file.ReadFromWithConcurrency(io.LimitReader(zeros{}, totalBytes), 64)
	if err != nil {
		return err
	}
	if written != totalBytes {
		return fmt.Errorf("%d of %d bytes were written", written, totalBytes)
	}
	return file.Close()
}

type zeros struct{}

func (zeros) Read(target []byte) (int, error) { return len(target), nil }
