package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits of a connection. Together they bound what a client that sends or
// reads slowly, or nothing at all, can hold.
const (
	// ReadHeaderTimeout bounds the TLS handshake and the headers: a few round
	// trips on a bad line.
	ReadHeaderTimeout = 5 * time.Second
	// ReadTimeout bounds headers and body: 2 MiB at 70 kB/s.
	ReadTimeout = 30 * time.Second
	// WriteTimeout bounds a request from the end of its headers to the end of
	// its answer: its body, the longest wait for a slot (MaxDeadline), an RSA
	// key generation and the way back.
	WriteTimeout = 2 * time.Minute
	// IdleTimeout is how long a connection is kept for the next request; it is
	// longer than the 60 s of common load balancers, so that these close first.
	IdleTimeout = 90 * time.Second
	// MaxHeaderBytes bounds the headers: a credential is 97 bytes, and nothing
	// else of size has a place there.
	MaxHeaderBytes = 16 << 10
	// maxConcurrentStreams bounds the requests of one HTTP/2 connection.
	maxConcurrentStreams = 128
)

// NewHTTPServer returns an HTTP server with the limits above for a handler.
// The caller sets TLSConfig, serves, and shuts it down. HTTP/2 is spoken over
// TLS only. log takes what goes wrong with connections, at debug level: a
// stranger can cause it at will.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: ReadHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       IdleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		Protocols:         &protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxConcurrentStreams},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		// OPTIONS * is answered like every other request that matches no route.
		DisableGeneralOptionsHandler: true,
	}
}
