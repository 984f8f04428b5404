// Command client calls Health with grpc-go and prints the status. Its environment has the certificates.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(os.Getenv("CA")))
	settings := &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}
	if own := os.Getenv("CERTIFICATE"); own != "" {
		pair, err := tls.X509KeyPair([]byte(own), []byte(os.Getenv("KEY")))
		if err != nil {
			log.Fatal(err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(credentials.NewTLS(settings)))
	if err != nil {
		log.Fatal(err)
	}
	empty := &emptypb.Empty{}
	err = connection.Invoke(context.Background(), "/svc.guest.v1alpha1.GuestAgent/Health", empty, empty)
	fmt.Println(int(status.Code(err)), err)
}
