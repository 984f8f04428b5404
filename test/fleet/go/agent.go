package main

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "guest-agent/fleet/gen/svc/guest/v1alpha1"
)

// credentialMount is where the node side mounts the files of a credential set.
const credentialMount = "/srv/credentials"

// agent is one sandbox's: it answers Health, hooks and duties, and takes new credentials.
type agent struct {
	name     string
	address  string
	isSilent bool
	made     time.Time
	isFrozen atomic.Bool
	// Milliseconds since the fleet's start; 0: none yet.
	dutiesDone atomic.Int64
	lock       sync.Mutex
	// What the guest's files hold, and what is in force.
	files, inForce credentialSet
	config         *tls.Config
}

// use puts a credential set in force; connections that were made with another one end, as with the real agent's duties.
func (a *agent) use(set credentialSet, onHandshake func()) error {
	config, err := set.config(onHandshake)
	if err != nil {
		return err
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	a.inForce, a.config = maps.Clone(set), config
	a.files = maps.Clone(set)
	return nil
}

// listener accepts the connections of one agent, counts them, and answers none if the agent is silent.
type listener struct {
	net.Listener
	agent  *agent
	counts *counts
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.counts.accepted.Add(1)
		if l.agent.isSilent {
			go func() {
				io.Copy(io.Discard, connection)
				connection.Close()
			}()
			continue
		}
		l.agent.lock.Lock()
		config := l.agent.config
		l.agent.lock.Unlock()
		return tls.Server(connection, config), nil
	}
}

// guests serves the schema for all agents, told apart by the address that was dialled.
type guests struct {
	pb.UnimplementedGuestAgentServer
	fleet *fleet
}

func (g *guests) agentOf(ctx context.Context) (*agent, error) {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "no peer")
	}
	host, _, _ := net.SplitHostPort(from.LocalAddr.String())
	found, ok := g.fleet.byAddress.Load(host)
	if !ok {
		return nil, status.Error(codes.NotFound, "no agent at "+host)
	}
	a := found.(*agent)
	a.lock.Lock()
	token := a.inForce.token()
	a.lock.Unlock()
	given := metadata.ValueFromIncomingContext(ctx, "svc-instance-token")
	if len(given) != 1 || given[0] != token {
		return nil, status.Error(codes.Unauthenticated, "the instance token is missing or wrong")
	}
	return a, nil
}

func (g *guests) Health(ctx context.Context, _ *pb.HealthRequest) (*pb.HealthResponse, error) {
	a, err := g.agentOf(ctx)
	if err != nil {
		return nil, err
	}
	return &pb.HealthResponse{
		Alive:             true,
		Ready:             true,
		LastUserActivity:  timestamppb.New(a.made),
		GuestTime:         timestamppb.Now(),
		Frozen:            a.isFrozen.Load(),
		ProcessEnvVersion: 1,
		Services:          []string{"svc.guest.v1alpha1.GuestAgent", "svc.guest.v1alpha1.Lifecycle"},
	}, nil
}

func (g *guests) RunHook(ctx context.Context, request *pb.RunHookRequest) (*pb.RunHookResponse, error) {
	a, err := g.agentOf(ctx)
	if err != nil {
		return nil, err
	}
	if request.Kind == pb.HookKind_HOOK_KIND_POST_RESTORE {
		time.Sleep(g.fleet.hookTime)
	}
	if request.FreezeMs > 0 {
		a.isFrozen.Store(true)
	}
	return &pb.RunHookResponse{Ran: true, Frozen: request.FreezeMs > 0}, nil
}

func (g *guests) RunRestoreDuties(ctx context.Context, request *pb.RestoreDutiesRequest) (*pb.RestoreDutiesResponse, error) {
	a, err := g.agentOf(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(g.fleet.dutiesTime)
	at := time.Since(g.fleet.start)
	isLate := g.fleet.frozen && a.dutiesDone.Load() == 0 && at > g.fleet.freeze
	a.dutiesDone.CompareAndSwap(0, max(1, at.Milliseconds()))
	if !request.KeepFrozen {
		a.isFrozen.Store(false)
	}
	a.lock.Lock()
	files := maps.Clone(a.files)
	a.lock.Unlock()
	if err := a.use(files, func() { g.fleet.counts.handshakes.Add(1) }); err != nil {
		return &pb.RestoreDutiesResponse{Degraded: "credentials:" + err.Error()}, nil
	}
	return &pb.RestoreDutiesResponse{
		EntropyBytesMixed:   uint32(len(request.Entropy)),
		EntropyCredited:     true,
		ClockStepped:        true,
		Frozen:              a.isFrozen.Load(),
		ThawedWithoutDuties: isLate,
	}, nil
}

// WriteFile keeps the files of the credential set, which the next duties put in force.
func (g *guests) WriteFile(stream grpc.ClientStreamingServer[pb.WriteFileRequest, pb.WriteFileResponse]) error {
	a, err := g.agentOf(stream.Context())
	if err != nil {
		return err
	}
	var name string
	var content []byte
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if header := request.GetHeader(); header != nil {
			name = header.Path
		}
		content = append(content, request.GetData()...)
	}
	if path.Dir(name) != credentialMount {
		return status.Error(codes.PermissionDenied, name)
	}
	a.lock.Lock()
	a.files[path.Base(name)] = content
	a.lock.Unlock()
	return stream.SendAndClose(&pb.WriteFileResponse{BytesWritten: uint64(len(content))})
}

// countCalls counts every call by its method.
func (c *counts) countCalls(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	c.call(path.Base(info.FullMethod))
	grpc.SetHeader(ctx, metadata.Pairs("svc-agent-version", "0.4.0"))
	return next(ctx, request)
}

func (f *fleet) listen(a *agent) error {
	socket, err := net.Listen("tcp", net.JoinHostPort(a.address, strconv.Itoa(f.port)))
	if err != nil {
		return err
	}
	f.byAddress.Store(a.address, a)
	go f.server.Serve(&listener{Listener: socket, agent: a, counts: &f.counts})
	return nil
}
