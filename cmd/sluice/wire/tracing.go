package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-kms/sluice/api"
	"github.com/sluice-kms/sluice/kms"
)

// TracingConfig says whether requests are traced.
type TracingConfig struct {
	// OTLPEndpoint is the URL of a collector that takes OTLP over HTTP, such as
	// https://collector:4318/v1/traces. Default none: nothing is traced.
	OTLPEndpoint string `koanf:"otlp_endpoint"`
	// Sample is the part of the requests that are traced, above 0 and up to 1.
	// Default 0.01.
	Sample float64 `koanf:"sample"`
}

// DefaultTraceSample costs nothing that can be measured and shows the ordinary.
const DefaultTraceSample = 0.01

// traceShutdown bounds the sending of what is left at the end: a collector that
// is away must not hold up the stop.
const traceShutdown = 3 * time.Second

func (c *TracingConfig) check() error {
	if c.Sample <= 0 || c.Sample > 1 {
		return errors.New("sample: must be above 0 and at most 1")
	}
	if c.OTLPEndpoint == "" {
		return nil
	}
	u, err := url.Parse(c.OTLPEndpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("otlp_endpoint: must be an http or https URL without a user")
	}
	return nil
}

// tracer makes spans of requests: one of the whole, as the server of the trace
// that the client's traceparent names, and one of each step that the ticket has
// the time of.
//
// What a client says decides nothing of the cost: its flag can only keep its
// request from being traced, and the draw is ours.
type tracer struct {
	spans  trace.Tracer
	sample float64
}

// openTracer returns nil when nothing is to be traced.
func (a *App) openTracer(ctx context.Context, version string) (api.Tracer, error) {
	c := a.config.Tracing
	if c.OTLPEndpoint == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.OTLPEndpoint))
	if err != nil {
		return nil, fmt.Errorf("opening the exporter of traces: %w", err)
	}
	// The library has one handler for the process and would print to standard
	// error past the log.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { a.log.Warn("traces were lost", slog.Any("error", err)) }))
	// The batcher drops what its queue has no room for: a collector that is
	// away costs no memory and no time.
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithSampler(sdk.AlwaysSample()),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "sluice"), attribute.String("service.version", version),
			attribute.String("service.instance.id", a.config.Node))))
	a.closes = append(a.closes, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), traceShutdown)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			a.log.Warn("traces were lost at the end", slog.Any("error", err))
		}
		return nil
	})
	return &tracer{spans: provider.Tracer("github.com/sluice-kms/sluice"), sample: c.Sample}, nil
}

// Begin implements api.Tracer.
func (t *tracer) Begin(ticket *kms.Ticket, r *http.Request) api.Trace {
	if t.sample < 1 && rand.Float64() >= t.sample {
		return nil
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
	if parent := trace.SpanContextFromContext(ctx); parent.IsValid() && !parent.IsSampled() {
		return nil
	}
	ctx, span := t.spans.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(ticket.Received))
	ticket.TraceID = span.SpanContext().TraceID().String()
	ticket.Steps = new(kms.Steps)
	return &requestTrace{spans: t.spans, ctx: ctx, span: span}
}

type requestTrace struct {
	spans trace.Tracer
	ctx   context.Context
	span  trace.Span
}

// stepNames are the names of the steps' spans.
var stepNames = [kms.StepCount]string{
	kms.StepAuthenticate: "authenticate", kms.StepLookup: "lookup", kms.StepAdmit: "admit", kms.StepIntent: "intent",
	kms.StepQueue: "queue", kms.StepHSM: "hsm", kms.StepStore: "store", kms.StepJournal: "journal",
}

// End implements api.Trace. Attributes are ids, names of closed sets and
// numbers: nothing of what the client sent.
func (r *requestTrace) End(t *kms.Ticket, route string, status int) {
	began := t.Received
	for step, ended := range t.Steps {
		if ended.IsZero() {
			continue
		}
		_, span := r.spans.Start(r.ctx, stepNames[step], trace.WithTimestamp(began))
		switch kms.Step(step) {
		case kms.StepQueue:
			span.SetAttributes(attribute.Int64("sluice.wait_ns", int64(t.Wait)))
		case kms.StepHSM:
			span.SetAttributes(attribute.String("sluice.node", string(t.Node)), attribute.Int("sluice.attempts", t.Attempts),
				attribute.Int64("sluice.slot_ns", int64(t.SlotTime)), attribute.Bool("sluice.cold_load", t.ColdLoad))
		}
		span.End(trace.WithTimestamp(ended))
		began = ended
	}
	r.span.SetName(route)
	r.span.SetAttributes(attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status), attribute.String("sluice.request_id", t.RequestID.String()),
		attribute.String("sluice.op", string(t.Op)))
	if t.By != nil {
		r.span.SetAttributes(attribute.String("sluice.tenant", t.By.Tenant.ID.String()), attribute.String("sluice.tier", string(t.By.Tenant.Tier)))
	}
	if t.Key != nil {
		r.span.SetAttributes(attribute.String("sluice.key", t.Key.ID.String()), attribute.String("sluice.spec", string(t.Key.Spec)))
	}
	if status == 0 || status >= http.StatusInternalServerError {
		r.span.SetStatus(codes.Error, "")
	}
	r.span.End()
}
