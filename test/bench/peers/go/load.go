// The load: puts jobs on one target and measures what its client sees.
package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// job is one order. Operations are spread over atOnce workers.
type job struct {
	Kind       string   `json:"kind"`
	Command    []string `json:"command"`
	Path       string   `json:"path"`
	Count      int      `json:"count"`
	AtOnce     int      `json:"atOnce"`
	TotalBytes int64    `json:"totalBytes"`
	ChunkBytes int      `json:"chunkBytes"`
	Probe      bool     `json:"probe"`
	// Before each operation.
	PauseMs int `json:"pauseMs"`
}

type jobResult struct {
	Seconds    float64    `json:"seconds"`
	Operations int        `json:"operations"`
	Bytes      int64      `json:"bytes"`
	Latency    *quantiles `json:"latency,omitempty"`
	// Pings beside the work, on a connection of their own.
	Probe *quantiles `json:"probe,omitempty"`
	Error string     `json:"error,omitempty"`
}

type bench struct {
	dial   func() (*target, error)
	target *target
	// Further connections, where one does not take all calls of a job.
	more []*target
	held []*grpcEcho
}

// operation is done Count times; it returns the bytes moved.
type operation func(worker int) (int64, error)

func (b *bench) run(job job) (*jobResult, error) {
	operation, err := b.operationOf(job)
	if err != nil {
		return nil, err
	}
	if !job.Probe {
		return measure(job, operation)
	}
	stop, err := b.startProbe()
	if err != nil {
		return nil, err
	}
	result, err := measure(job, operation)
	probe := stop()
	if err == nil {
		result.Probe = probe
	}
	return result, err
}

func (b *bench) operationOf(job job) (operation, error) {
	target := b.target
	switch job.Kind {
	case "ping":
		return func(int) (int64, error) { return 0, target.ping() }, nil
	case "run":
		targets, err := b.targetsFor(job.AtOnce)
		if err != nil {
			return nil, err
		}
		return func(worker int) (int64, error) {
			return targets[worker/callsOfConnection].run(job.Command, false)
		}, nil
	case "terminal":
		return func(int) (int64, error) { return target.run(job.Command, true) }, nil
	case "feed":
		return func(int) (int64, error) {
			return job.TotalBytes, target.feed(job.Command, job.TotalBytes, job.ChunkBytes)
		}, nil
	case "read":
		return func(int) (int64, error) { return target.readFile(job.Path) }, nil
	case "write":
		return func(worker int) (int64, error) {
			path := fmt.Sprintf("%s.%d", job.Path, worker)
			return job.TotalBytes, target.writeFile(path, job.TotalBytes, job.ChunkBytes)
		}, nil
	case "echo":
		session, err := target.echo(job.Command)
		if err != nil {
			return nil, err
		}
		b.held = append(b.held, session)
		return func(int) (int64, error) { return 1, session.roundTrip() }, nil
	case "release":
		return func(int) (int64, error) { return 0, b.release() }, nil
	}
	return nil, fmt.Errorf("no job %q", job.Kind)
}

// The agent takes so many calls of a connection at once; grpc-go would make the others wait, and nobody would see it.
const callsOfConnection = 128

// targetsFor gives a connection for each so many workers; those that are opened for it stay open for the next job.
func (b *bench) targetsFor(workers int) ([]*target, error) {
	for len(b.more)+1 < (workers+callsOfConnection-1)/callsOfConnection {
		another, err := b.dial()
		if err != nil {
			return nil, err
		}
		b.more = append(b.more, another)
	}
	return append([]*target{b.target}, b.more...), nil
}

func (b *bench) release() error {
	var failed error
	for _, session := range b.held {
		if err := session.end(); err != nil {
			failed = err
		}
	}
	b.held = nil
	return failed
}

func measure(job job, operation operation) (*jobResult, error) {
	count, workers := max(job.Count, 1), max(job.AtOnce, 1)
	latencies := make([]time.Duration, count)
	var next, bytes atomic.Int64
	var failure atomic.Pointer[error]
	var group sync.WaitGroup
	began := time.Now()
	for worker := range workers {
		group.Go(func() {
			for failure.Load() == nil {
				number := int(next.Add(1)) - 1
				if number >= count {
					return
				}
				time.Sleep(time.Duration(job.PauseMs) * time.Millisecond)
				start := time.Now()
				moved, err := operation(worker)
				if err != nil {
					failure.Store(&err)
					return
				}
				latencies[number] = time.Since(start)
				bytes.Add(moved)
			}
		})
	}
	group.Wait()
	seconds := time.Since(began).Seconds()
	if err := failure.Load(); err != nil {
		return nil, *err
	}
	return &jobResult{Seconds: seconds, Operations: count, Bytes: bytes.Load(), Latency: quantilesOf(latencies)}, nil
}

const probeInterval = 5 * time.Millisecond

// startProbe pings over a connection of its own until it is stopped: what a second caller sees of the work.
func (b *bench) startProbe() (func() *quantiles, error) {
	target, err := b.dial()
	if err != nil {
		return nil, err
	}
	if err := target.ping(); err != nil {
		return nil, err
	}
	stop, done := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var latencies []time.Duration
		ticker := time.NewTicker(probeInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				done <- latencies
				return
			case <-ticker.C:
			}
			start := time.Now()
			if target.ping() == nil {
				latencies = append(latencies, time.Since(start))
			}
		}
	}()
	return func() *quantiles {
		close(stop)
		latencies := <-done
		target.close()
		return quantilesOf(latencies)
	}, nil
}

type quantiles struct {
	P50Us float64 `json:"p50Us"`
	P99Us float64 `json:"p99Us"`
}

func quantilesOf(durations []time.Duration) *quantiles {
	if len(durations) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(durations))
	at := func(part float64) float64 {
		return float64(sorted[int(part*float64(len(sorted)-1)+0.5)].Nanoseconds()) / 1e3
	}
	return &quantiles{P50Us: at(0.5), P99Us: at(0.99)}
}
