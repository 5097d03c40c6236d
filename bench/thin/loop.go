package main

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// loopMessage is what is encrypted and signed in the loop: as much as the loads
// of the benchmarks have.
const loopMessage = 64

// windows are what the time of an operation is divided into. The best counts: the
// limit is what the module can do, and other work on the machine only hides it.
const windows = 5

// loop calls the module for each operation from as many goroutines as there are
// sessions, with no HTTP before it, for a time each, and writes the operations/s
// as JSON. It is the most that anything in front of the module can come to.
func loop(b backend, slots int, each time.Duration, out io.Writer) error {
	rates := make(map[string]float64)
	for name, call := range map[string]func([]byte) ([]byte, error){"/encrypt": b.encrypt, "/sign/ec": b.signEC, "/sign/rsa": b.signRSA} {
		for range windows {
			rate, err := window(call, slots, each/windows)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			rates[name] = max(rates[name], rate)
		}
	}
	return json.MarshalWrite(out, rates)
}

// window returns the operations/s of one window.
func window(call func([]byte) ([]byte, error), slots int, d time.Duration) (float64, error) {
	message := make([]byte, loopMessage)
	var all sync.WaitGroup
	var done atomic.Int64
	failed := make([]error, slots)
	began := time.Now()
	for i := range slots {
		all.Go(func() {
			for time.Since(began) < d && failed[i] == nil {
				_, failed[i] = call(message)
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(failed...)
}
