// The native half of the benchmark: the peer in Go, and the client that drives both. Usage: program serve
// CREDENTIALS-FOLDER TOKEN [ADDRESS] | program load ADDRESS CREDENTIALS-FOLDER TOKEN
package main

import (
	"log"
	"os"

	"guest-agent/bench/load"
	"guest-agent/bench/server"
)

func main() {
	log.SetFlags(0)
	args := os.Args[1:]
	switch {
	case len(args) == 3 && args[0] == "serve":
		log.Fatal(server.Serve(args[1], args[2], "127.0.0.1:0"))
	case len(args) == 4 && args[0] == "serve":
		log.Fatal(server.Serve(args[1], args[2], args[3]))
	case len(args) == 4 && args[0] == "load":
		if err := load.Drive(args[1], args[2], args[3]); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatal("usage: program serve CREDENTIALS-FOLDER TOKEN [ADDRESS] | program load ADDRESS CREDENTIALS-FOLDER TOKEN")
	}
}
