package main

import (
	"encoding/json/v2"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// loopMessage is what is encrypted and signed in the loop: as much as the loads
// of the benchmarks have.
const loopMessage = 64

// loop calls the module for each operation from as many goroutines as there are
// sessions, with no HTTP before it, for a time each, and writes the operations/s
// as JSON. It is the most that anything in front of the module can come to.
func loop(b backend, slots int, each time.Duration, out io.Writer) error {
	message := make([]byte, loopMessage)
	rates := make(map[string]float64)
	for name, call := range map[string]func([]byte) ([]byte, error){"/encrypt": b.encrypt, "/sign/ec": b.signEC, "/sign/rsa": b.signRSA} {
		var all sync.WaitGroup
		var done atomic.Int64
		failed := make([]error, slots)
		began := time.Now()
		for i := range slots {
			all.Go(func() {
				for time.Since(began) < each && failed[i] == nil {
					_, failed[i] = call(message)
					done.Add(1)
				}
			})
		}
		all.Wait()
		for _, err := range failed {
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		rates[name] = float64(done.Load()) / time.Since(began).Seconds()
	}
	return json.MarshalWrite(out, rates)
}
