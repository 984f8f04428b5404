package load

import (
	"bytes"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

const entriesField = 1

func (t *grpcTarget) list(path string) (entries int64, err error) {
	err = t.ask("FileTree/List", &pb.ListRequest{Path: []byte(path)}, func(number int, _ int64) {
		if number == entriesField {
			entries++
		}
	})
	return entries, err
}

// What List tells: name, type, size, mode, owner, three times, inode, links, target.
const (
	findFormat = `%P\0%y\0%s\0%m\0%U\0%G\0%T@\0%A@\0%C@\0%i\0%n\0%l\0`
	findFields = 12
)

type endCounter struct{ ends int64 }

func (c *endCounter) Write(output []byte) (int, error) {
	c.ends += int64(bytes.Count(output, []byte{0}))
	return len(output), nil
}

func (t *sshTarget) list(path string) (int64, error) {
	session, err := t.client.NewSession()
	if err != nil {
		return 0, err
	}
	defer session.Close()
	output := &endCounter{}
	session.Stdout = output
	err = session.Run("find '" + path + "' -mindepth 1 -maxdepth 1 -printf '" + findFormat + "'")
	return output.ends / findFields, err
}
