package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	pb "guest-agent/fleet/gen/svc/guest/v1alpha1"
)

type node struct{ directory, id, journal string }

// fleet is all agents, and what the API lists of them.
type fleet struct {
	options
	start     time.Time
	server    *grpc.Server
	byAddress sync.Map
	counts    counts

	lock      sync.Mutex
	agents    []*agent
	instances table
	volumes   table
	snapshots table
	ingresses table
	nodes     map[string]node
}

func newFleet(o options) *fleet {
	f := &fleet{options: o, start: time.Now(), nodes: map[string]node{}}
	f.counts.calls = map[string]int64{}
	f.server = grpc.NewServer(grpc.UnaryInterceptor(f.counts.countCalls))
	pb.RegisterGuestAgentServer(f.server, &guests{fleet: f})
	return f
}

// addNode makes the sandboxes of a node, whose journal names them "sb-" and five digits, and their credentials.
func (f *fleet) addNode(n node, count int) error {
	own := map[string]string{"svc.node_id": n.id, "svc.journal": n.journal, "svc.agent_volume": agentVolume}
	f.nodes[n.id] = n
	places := make(chan struct{}, runtime.NumCPU())
	failures := make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		name := fmt.Sprintf("sb-%05d", i)
		a := &agent{name: name, address: f.address(len(f.agents)), isSilent: i < f.silent, made: time.Now()}
		a.isFrozen.Store(f.frozen)
		f.agents = append(f.agents, a)
		id := fmt.Sprintf("%s-%05d", n.id, i)
		tags := merged(own, map[string]string{"svc.operation": fmt.Sprintf("operation-%s-%05d", n.id, i)})
		f.instances.add(&thing{id: id, name: name, tags: tags, state: "Running", address: a.address})
		f.volumes.add(&thing{id: id + "-credentials", name: id + "-credentials", tags: own})
		if i < f.options.snapshots {
			f.snapshots.add(&thing{id: "snapshot-" + id, name: fmt.Sprintf("snap-%05d", i), tags: own})
		}
		all.Add(1)
		places <- struct{}{}
		go func() {
			defer all.Done()
			failures[i] = f.begin(a, filepath.Join(n.directory, "credentials", name))
			<-places
		}()
	}
	all.Wait()
	f.volumes.add(&thing{id: agentVolume, name: agentVolume, tags: map[string]string{"svc.agent": "true"}})
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) begin(a *agent, directory string) error {
	set, err := issue(directory)
	if err != nil {
		return err
	}
	return f.beginWith(a, set)
}

func (f *fleet) beginWith(a *agent, set credentialSet) error {
	if err := a.use(set, func() { f.counts.handshakes.Add(1) }); err != nil {
		return err
	}
	return f.listen(a)
}

func (f *fleet) address(at int) string { return fmt.Sprintf("%s.%d.%d", f.network, at/250, at%250+1) }

// counts is what was asked of agents and API.
type counts struct {
	lock       sync.Mutex
	calls      map[string]int64
	times      []int64
	handshakes atomic.Int64
	accepted   atomic.Int64
}

func (c *counts) call(name string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.calls[name]++
	if name == "Health" {
		c.times = append(c.times, time.Now().UnixMilli())
	}
}
