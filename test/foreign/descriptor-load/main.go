// Loads all descriptors of a gRPC server by reflection, with the packages of grpcui and in its order (cmd/grpcui/grpcui.go
// of grpcui 1.5.2): each service's descriptor, then each file and the extensions of each message. Prints them as JSON.
//
//	descriptor-load ADDRESS CA CERTIFICATE KEY SERVER-NAME TOKEN
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/fullstorydev/grpcurl"
	"github.com/jhump/protoreflect/grpcreflect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// grpcui waits as long for its connection.
const dialLimit = 10 * time.Second

type loaded struct {
	// The full names of each service's methods.
	Services map[string][]string `json:"services"`
	Files    []string            `json:"files"`
}

func load(address, ca, certificate, key, serverName, token string) (*loaded, error) {
	credentials, err := grpcurl.ClientTransportCredentials(false, ca, certificate, key)
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	connection, err := grpcurl.BlockingDial(dialing, "tcp", address, credentials, grpc.WithAuthority(serverName))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	headers := grpcurl.MetadataFromHeaders([]string{"svc-instance-token: " + token})
	ctx := metadata.NewOutgoingContext(context.Background(), headers)
	client := grpcreflect.NewClientAuto(ctx, connection)
	defer client.Reset()
	source := grpcurl.DescriptorSourceFromServer(ctx, client)
	names, err := source.ListServices()
	if err != nil {
		return nil, err
	}
	result := &loaded{Services: map[string][]string{}}
	for _, name := range names {
		if result.Services[name], err = grpcurl.ListMethods(source, name); err != nil {
			return nil, err
		}
	}
	files, err := grpcurl.GetAllFiles(source)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		result.Files = append(result.Files, file.GetName())
	}
	return result, nil
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: descriptor-load ADDRESS CA CERTIFICATE KEY SERVER-NAME TOKEN")
		os.Exit(2)
	}
	arguments := os.Args[1:]
	result, err := load(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
