// Package load puts load on one target and measures what its client sees.
package load

import (
	"bufio"
	"encoding/json"
	"os"
)

// Drive takes jobs as JSON lines on standard input and answers each with a JSON line on standard output.
func Drive(address, folder, token string) error {
	dial := func() (*target, error) { return dialTarget(address, folder, token) }
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
