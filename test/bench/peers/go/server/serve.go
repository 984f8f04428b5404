// Package server is the peer: a grpc-go server of the same schema that does the same work, as one would write it in Go.
// Mutual TLS 1.3 and the token are checked as the agent checks them.
package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "guest-agent/bench/gen/svc/guest/v1alpha1"
)

// Serve listens on an address, prints its port, and serves for ever.
func Serve(folder, token, address string) error {
	secure, err := tlsConfig(folder)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	check := tokenCheck{token: token}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(secure)),
		grpc.UnaryInterceptor(check.unary),
		grpc.StreamInterceptor(check.stream),
	)
	pb.RegisterGuestAgentServer(server, &guest{})
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	return server.Serve(listener)
}

func tlsConfig(folder string) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority)
	return &tls.Config{
		Certificates:           []tls.Certificate{certificate},
		ClientCAs:              clients,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
	}, nil
}
