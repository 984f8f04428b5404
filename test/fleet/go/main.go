// A host's worth of sandboxes in one process: agents on addresses of the loopback, each with an authority of its own, and
// a fake of the substrate's HTTP API that lists them. It keeps counts of what the node side asks of both.
//
// Usage: program [options] STATE-DIRECTORY=NODE-ID=JOURNAL-ID=COUNT...
//
// Each argument is a node with that many sandboxes, whose credentials are written into its state directory. The program
// prints the address of the API as its first line, and ends when its standard input does.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	network    string
	port       int
	silent     int
	frozen     bool
	snapshots  int
	freeze     time.Duration
	hookTime   time.Duration
	dutiesTime time.Duration
	writeTime  time.Duration
}

func main() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.network, "network", "127.77", "first two bytes of the agents' addresses")
	flag.IntVar(&o.port, "port", 7071, "port of the agents")
	flag.IntVar(&o.silent, "silent", 0, "so many agents of each node, the first, accept connections and never answer")
	flag.BoolVar(&o.frozen, "frozen", false, "the sessions are frozen and wait for their restore duties")
	flag.IntVar(&o.snapshots, "snapshots", 0, "snapshots of each node")
	flag.DurationVar(&o.freeze, "freeze", 190*time.Second, "time after which a frozen session thaws by itself")
	flag.DurationVar(&o.hookTime, "hook-time", 0, "duration of the POST_RESTORE hook")
	flag.DurationVar(&o.dutiesTime, "duties-time", 0, "duration of the restore duties")
	flag.DurationVar(&o.writeTime, "write-time", 0, "duration of each API call that changes something")
	flag.Parse()
	raiseFileLimit()
	fleet := newFleet(o)
	for _, argument := range flag.Args() {
		words := strings.Split(argument, "=")
		if len(words) != 4 {
			log.Fatalf("%q is not STATE-DIRECTORY=NODE-ID=JOURNAL-ID=COUNT", argument)
		}
		count, err := strconv.Atoi(words[3])
		if err != nil {
			log.Fatal(err)
		}
		if err := fleet.addNode(node{directory: words[0], id: words[1], journal: words[2]}, count); err != nil {
			log.Fatal(err)
		}
	}
	address, err := fleet.serveAPI()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(address)
	io.Copy(io.Discard, os.Stdin)
}

// Each agent has a listener, and each watched one a connection.
func raiseFileLimit() {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		limit.Cur = limit.Max
		syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	}
}
