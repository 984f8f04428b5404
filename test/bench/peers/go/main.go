// The native half of the benchmark: the peer in Go, and the client that drives both. Usage: program serve
// CREDENTIALS-DIRECTORY TOKEN ADDRESS | program load ADDRESS CREDENTIALS-DIRECTORY TOKEN
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(0)
	args := os.Args[1:]
	switch {
	case len(args) == 4 && args[0] == "serve":
		log.Fatal(serve(args[1], args[2], args[3]))
	case len(args) == 4 && args[0] == "load":
		if err := drive(args[1], args[2], args[3]); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatal("usage: program serve CREDENTIALS-DIRECTORY TOKEN ADDRESS | program load ADDRESS CREDENTIALS-DIRECTORY TOKEN")
	}
}

// drive takes jobs as JSON lines on standard input and answers each with a JSON line on standard output.
func drive(address, directory, token string) error {
	dial := func() (*target, error) { return dialTarget(address, directory, token) }
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

// tlsConfig has the certificate of a role, "client" or "server", and takes those of the other with the same authority.
func tlsConfig(directory, role string) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(directory, role+".pem"), filepath.Join(directory, role+".key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(directory, "ca.pem"))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(authority)
	return &tls.Config{
		Certificates:           []tls.Certificate{certificate},
		RootCAs:                authorities,
		ClientCAs:              authorities,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ServerName:             "localhost",
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
	}, nil
}
