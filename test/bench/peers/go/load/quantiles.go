package load

import (
	"slices"
	"time"
)

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
