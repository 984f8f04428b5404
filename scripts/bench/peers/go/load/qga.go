package load

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
)

const (
	qgaReadBytes  = 4 * 1024 * 1024
	qgaWriteBytes = 1024 * 1024
)

// qgaTarget speaks JSON to the QEMU guest agent over its socket; it takes one command at a time.
type qgaTarget struct {
	unsupported
	connection net.Conn
	answers    *bufio.Reader
	mutex      sync.Mutex
}

func dialQga(socket string) (target, error) {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return &qgaTarget{connection: connection, answers: bufio.NewReaderSize(connection, 1<<20)}, nil
}

func (t *qgaTarget) close() { t.connection.Close() }

func (t *qgaTarget) call(command string, arguments, result any) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	order := map[string]any{"execute": command}
	if arguments != nil {
		order["arguments"] = arguments
	}
	bytes, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if _, err := t.connection.Write(append(bytes, '\n')); err != nil {
		return err
	}
	line, err := t.answers.ReadBytes('\n')
	if err != nil {
		return err
	}
	var answer struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.Error.Desc)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.Return, result)
}

func (t *qgaTarget) ping() error { return t.call("guest-ping", nil, nil) }

// run starts a command and asks for its end until it has come: it has no other way.
func (t *qgaTarget) run(command []string, inTerminal bool) (int64, error) {
	if inTerminal {
		return 0, errUnsupported
	}
	var started struct {
		Pid int `json:"pid"`
	}
	order := map[string]any{"path": command[0], "arg": command[1:], "capture-output": true}
	if err := t.call("guest-exec", order, &started); err != nil {
		return 0, err
	}
	for {
		var state struct {
			Exited   bool   `json:"exited"`
			ExitCode int    `json:"exitcode"`
			Output   string `json:"out-data"`
		}
		if err := t.call("guest-exec-status", map[string]any{"pid": started.Pid}, &state); err != nil {
			return 0, err
		}
		if !state.Exited {
			continue
		}
		if state.ExitCode != 0 {
			return 0, fmt.Errorf("the command exited with %d", state.ExitCode)
		}
		return int64(base64.StdEncoding.DecodedLen(len(state.Output))), nil
	}
}

func (t *qgaTarget) open(path, mode string) (int, error) {
	handle := 0
	err := t.call("guest-file-open", map[string]any{"path": path, "mode": mode}, &handle)
	return handle, err
}

func (t *qgaTarget) readFile(path string) (int64, error) {
	handle, err := t.open(path, "r")
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for {
		var chunk struct {
			Count int64 `json:"count"`
			End   bool  `json:"eof"`
		}
		order := map[string]any{"handle": handle, "count": qgaReadBytes}
		if err := t.call("guest-file-read", order, &chunk); err != nil {
			return total, err
		}
		total += chunk.Count
		if chunk.End || chunk.Count == 0 {
			return total, t.call("guest-file-close", map[string]any{"handle": handle}, nil)
		}
	}
}

func (t *qgaTarget) writeFile(path string, totalBytes int64, _ int, _ bool) error {
	handle, err := t.open(path, "w")
	if err != nil {
		return err
	}
	chunk := base64.StdEncoding.EncodeToString(make([]byte, qgaWriteBytes))
	for left := totalBytes; left > 0; left -= qgaWriteBytes {
		order := map[string]any{"handle": handle, "buf-b64": chunk, "count": min(left, qgaWriteBytes)}
		if err := t.call("guest-file-write", order, nil); err != nil {
			return err
		}
	}
	return t.call("guest-file-close", map[string]any{"handle": handle}, nil)
}
