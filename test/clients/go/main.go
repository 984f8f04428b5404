// Command client runs the cases of the transport suite with grpc-go, and prints a line for each: "ok NAME" or
// "FAILED NAME: why". The token is in GUEST_TOKEN.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	pb "guestagent.test/client/gen/svc/guest/v1alpha1"
)

// Time for one case: the machine may be busy.
const caseLimit = 60 * time.Second

// What the cases work with.
type guest struct {
	agent      pb.GuestAgentClient
	connection *grpc.ClientConn
	again      func() (*grpc.ClientConn, error)
	folder     string
	// Argument of sleep(1) that marks the commands which the cases give up.
	pause string
}

func main() {
	target := flag.String("target", "", "host:port or unix:/path")
	certificates := flag.String("certificates", "", "folder of ca.pem, client.pem and client.key; none: no TLS")
	serverName := flag.String("server-name", "", "name in the agent's certificate")
	folder := flag.String("folder", "", "a folder of the guest")
	pause := flag.String("pause", "", "seconds to sleep in commands that are given up")
	flag.Parse()

	dial := func() (*grpc.ClientConn, error) {
		security, err := transportSecurity(*certificates, *serverName)
		if err != nil {
			return nil, err
		}
		return grpc.NewClient(*target, grpc.WithTransportCredentials(security))
	}
	connection, err := dial()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(runAll(guest{pb.NewGuestAgentClient(connection), connection, dial, *folder, *pause}))
}

func runAll(guest guest) int {
	status := 0
	for _, each := range cases {
		ctx, cancel := context.WithTimeout(withToken(context.Background(), os.Getenv("GUEST_TOKEN")), caseLimit)
		if err := each.run(ctx, guest); err != nil {
			fmt.Printf("FAILED %s: %v\n", each.name, err)
			status = 1
		} else {
			fmt.Printf("ok %s\n", each.name)
		}
		cancel()
	}
	return status
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs("svc-instance-token", token))
}

func transportSecurity(folder, serverName string) (credentials.TransportCredentials, error) {
	if folder == "" {
		return insecure.NewCredentials(), nil
	}
	own, err := tls.LoadX509KeyPair(filepath.Join(folder, "client.pem"), filepath.Join(folder, "client.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own},
		RootCAs:      roots,
		ServerName:   serverName,
		MinVersion:   tls.VersionTLS13,
	}), nil
}
