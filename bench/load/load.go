// Package load drives an HTTP server with prepared requests and measures what
// came back: over and over on a fixed number of connections (Closed), or by
// streams that arrive at constant or random intervals however long answers take
// (Play). Only loopback is driven unless a stream says that it may leave it.
//
// The client is small on purpose: it writes prepared bytes and reads a status
// line and a body of known length, so that on a machine with few cores the
// server gets nearly all of them.
package load

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Request is one HTTP/1.1 POST.
type Request struct {
	Address string // host:port, on loopback
	Host    string // as the server is asked for; "": the address
	Path    string
	Header  map[string]string
	Body    string
	// TLS is how Play connects; nil: without TLS.
	TLS *tls.Config
}

// Result is what a run measured.
type Result struct {
	Requests int
	Elapsed  time.Duration
	P50, P99 time.Duration
}

// Rate is the throughput in requests per second.
func (r Result) Rate() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// maxConnections bounds a run, so that a mistaken argument cannot exhaust the
// machine's ports.
const maxConnections = 1024

// Closed runs the request on the given number of connections, each sending
// the next one when the last was answered, for the duration. Any answer but
// 200 ends the run with an error. Only loopback addresses are driven.
func Closed(r Request, connections int, d time.Duration) (Result, error) {
	ap, err := netip.ParseAddrPort(r.Address)
	if err != nil || !ap.Addr().IsLoopback() {
		return Result{}, errors.New("load: the address must be an IP address and port on loopback")
	}
	if connections < 1 || connections > maxConnections {
		return Result{}, fmt.Errorf("load: connections must be 1 to %d", maxConnections)
	}
	raw := r.bytes()
	latencies := make([][]time.Duration, connections)
	errs := make([]error, connections)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range connections {
		wg.Go(func() { latencies[i], errs[i] = drive(r.Address, raw, start.Add(d)) })
	}
	wg.Wait()
	elapsed := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	if len(all) == 0 {
		return Result{}, errors.New("load: no request was answered")
	}
	return Result{Requests: len(all), Elapsed: elapsed, P50: all[len(all)/2], P99: all[len(all)*99/100]}, nil
}

func (r Request) bytes() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", r.Path, cmp.Or(r.Host, r.Address), len(r.Body))
	for k, v := range r.Header {
		fmt.Fprintf(&b, "%s: %s\r\n", k, v)
	}
	b.WriteString("\r\n")
	b.WriteString(r.Body)
	return []byte(b.String())
}

func drive(address string, raw []byte, end time.Time) ([]time.Duration, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var latencies []time.Duration
	for {
		sent := time.Now()
		if !sent.Before(end) {
			return latencies, nil
		}
		if err := conn.SetDeadline(sent.Add(30 * time.Second)); err != nil {
			return nil, err
		}
		if _, err := conn.Write(raw); err != nil {
			return nil, err
		}
		if err := readAnswer(in); err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(sent))
	}
}

func readAnswer(in *bufio.Reader) error {
	a, err := readHead(in)
	if err == nil && a.status != 200 {
		err = fmt.Errorf("load: the answer has status %d", a.status)
	}
	return err
}

// answer is what is looked at of an answer.
type answer struct {
	status      int
	queued, hsm time.Duration // by Server-Timing; 0: it does not say
	closes      bool          // the server ends the connection after it
}

// readHead reads an answer to its end and returns what its head says.
func readHead(in *bufio.Reader) (a answer, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	if len(line) < len("HTTP/1.1 200") || !strings.HasPrefix(string(line), "HTTP/1.1 ") {
		return a, errors.New("load: an answer that is not HTTP/1.1")
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, errors.New("load: an answer without a status")
	}
	length, chunked := -1, false
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return a, err
		}
		if len(line) == 2 {
			break
		}
		name, value, _ := strings.Cut(strings.ToLower(string(line)), ":")
		switch name {
		case "content-length":
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return a, err
			}
		case "server-timing":
			a.queued, a.hsm = metric(value, "queue;dur="), metric(value, "hsm;dur=")
		case "transfer-encoding":
			chunked = strings.TrimSpace(value) == "chunked"
		case "connection":
			a.closes = strings.TrimSpace(value) == "close"
		}
	}
	switch {
	case chunked:
		return a, skipChunks(in)
	case a.status == 204: // which has no body (RFC 9110, 15.3.5)
		return a, nil
	case length < 0:
		return a, errors.New("load: an answer of unknown length")
	}
	_, err = io.CopyN(io.Discard, in, int64(length))
	return a, err
}

// skipChunks reads a chunked body with its trailer (RFC 9112, 7.1).
func skipChunks(in *bufio.Reader) error {
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(in)); err != nil {
		return err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil || len(line) == 2 {
			return err
		}
	}
}

// metric finds a metric of Server-Timing, which is in milliseconds.
func metric(timing, name string) time.Duration {
	_, rest, _ := strings.Cut(timing, name)
	number, _, _ := strings.Cut(rest, ",")
	ms, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}
