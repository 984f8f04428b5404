// Package load puts load on one target and measures what its client sees.
package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// Drive takes jobs as JSON lines on standard input and answers each with a JSON line on standard output.
func Drive(args []string) error {
	dial, err := dialer(args)
	if err != nil {
		return err
	}
	target, err := dial()
	if err != nil {
		return err
	}
	bench := &bench{dial: dial, target: target}
	lines := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var job job
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
			return err
		}
		result, err := bench.run(job)
		if err != nil {
			result = &jobResult{Error: err.Error()}
		}
		if err := answers.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

func dialer(args []string) (func() (target, error), error) {
	switch {
	case len(args) == 4 && args[0] == "grpc":
		return func() (target, error) { return dialGrpc(args[1], args[2], args[3]) }, nil
	case len(args) == 4 && args[0] == "https":
		return func() (target, error) { return dialHttps(args[1], args[2], args[3]) }, nil
	case len(args) == 3 && args[0] == "ssh":
		return func() (target, error) { return dialSsh(args[1], args[2]) }, nil
	}
	return nil, fmt.Errorf("load: grpc|https ADDRESS CREDENTIALS-FOLDER TOKEN | ssh ADDRESS KEY-FILE")
}
