package load

import "time"

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
