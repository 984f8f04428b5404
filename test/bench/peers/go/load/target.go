package load

import "errors"

var errUnsupported = errors.New("this target has no such operation")

// target is what can be asked of every contender, in its own protocol.
type target interface {
	// ping is the smallest question that the other side answers.
	ping() error
	// run runs a command to its end and returns how many bytes of output came.
	run(command []string, inTerminal bool) (int64, error)
	// feed runs a command that reads its input to the end.
	feed(command []string, totalBytes int64, chunkBytes int) error
	// echo starts a command that echoes its input.
	echo(command []string) (echoSession, error)
	readFile(path string) (int64, error)
	// writeFile writes a file; with skipSum nobody shall compute its checksum, where the protocol has one.
	writeFile(path string, totalBytes int64, chunkBytes int, skipSum bool) error
	close()
}

// echoSession is a running command that answers each byte.
type echoSession interface {
	roundTrip() error
	end() error
}

// unsupported is embedded in targets that have not all operations.
type unsupported struct{}

func (unsupported) run([]string, bool) (int64, error)  { return 0, errUnsupported }
func (unsupported) feed([]string, int64, int) error    { return errUnsupported }
func (unsupported) echo([]string) (echoSession, error) { return nil, errUnsupported }
func (unsupported) readFile(string) (int64, error)     { return 0, errUnsupported }
func (unsupported) writeFile(string, int64, int, bool) error {
	return errUnsupported
}
