package api

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// change completes a route that changes stored state, so that a client can
// repeat a request of it under the same Idempotency-Key and have it happen
// once. replay answers such a repetition: it authorises the caller anew and
// finds the object that the request was about as it is now.
func change[Req, Resp any](r Route, handle func(*call, *Req) (*Resp, error), replay func(c *call, resource string) (*Resp, error)) Route {
	r = complete[Req, Resp](r)
	if !r.changes() {
		panic("api: " + r.Name + " changes nothing")
	}
	r.serve = func(c *call) (*buffer, error) {
		var in Req
		body, err := c.readRequest(&in)
		if err != nil {
			return nil, err
		}
		claim, record, err := c.claim(body)
		body.release()
		if err != nil {
			return nil, err
		}
		if record != nil {
			out, err := replay(c, record.Resource)
			return c.answer(out, c.replayed(record, err))
		}
		out, err := handle(c, &in)
		if claim != nil {
			c.conclude(claim, err)
		}
		return c.answer(out, err)
	}
	return r
}

// claimRetry is when a client may ask again after the request that is in
// flight: most take milliseconds, an RSA key seconds.
const claimRetry = time.Second

// claim claims the Idempotency-Key of a request, if it has one: what tells the
// request from others are its route, the objects that it names, and its body.
// It returns the record of an earlier answer, if there was one.
func (c *call) claim(body *buffer) (*kms.Claim, *kms.IdempotencyRecord, error) {
	if body == nil {
		return c.claimRequest()
	}
	return c.claimRequest(body.bytes)
}

// claimRequest is claim of a request of which parts, in the place of a body, tell
// it from others.
func (c *call) claimRequest(parts ...[]byte) (*kms.Claim, *kms.IdempotencyRecord, error) {
	values := c.request.Header[headerIdempotency]
	switch {
	case len(values) == 0, c.ticket.DryRun:
		return nil, nil, nil
	case len(values) > 1:
		return nil, nil, kms.Errorf(kms.KindMalformed, "header %s: is given more than once", headerIdempotency)
	}
	request := [][]byte{[]byte(c.route.template())}
	for i := range c.objects {
		request = append(request, []byte(c.object(i)))
	}
	request = append(request, parts...)
	claim, record, err := c.service.Once(c.context, c.ticket.By, values[0], request...)
	if err != nil && kms.KindOf(err) == kms.KindConflict {
		err = &kms.Error{Kind: kms.KindConflict, Detail: "the first request with this idempotency key is still under way",
			RetryAfter: claimRetry, Err: err}
	}
	return claim, record, err
}

// conclude ends a claim after its request ended with err. A request that
// changed nothing may be sent again. Of one whose outcome nobody knows the
// claim is left alone: it expires, and until then a repetition is told to
// wait.
func (c *call) conclude(claim *kms.Claim, err error) {
	var record *kms.IdempotencyRecord
	if err == nil {
		record = &kms.IdempotencyRecord{Status: c.route.Success, Resource: c.resource(), Secret: c.route.Secret}
	} else {
		switch kms.KindOf(err) {
		case kms.KindInternal, kms.KindStoreUnavailable, kms.KindAuditUnavailable:
			return
		}
	}
	if err := claim.Done(c.context, record); err != nil {
		c.server.log.LogAttrs(c.context, slog.LevelWarn, "idempotency key not settled",
			slog.String("request_id", c.ticket.RequestID.String()), slog.String("route", c.template()), slog.Any("error", err))
	}
}

// replayed marks an answer as the repetition of an earlier one. One that held
// a secret cannot be repeated: the secret is not kept.
func (c *call) replayed(record *kms.IdempotencyRecord, err error) error {
	switch {
	case err != nil:
		return err
	case record.Secret:
		return kms.Errorf(kms.KindConflict,
			"the request was carried out before; its answer held a secret, which is shown only once; the id is %s", record.Resource)
	}
	c.success = record.Status
	c.Header().Set(headerReplayed, "true")
	return nil
}

// resource names what a request was about in its record.
func (c *call) resource() string {
	if c.named != "" {
		return c.named
	}
	if c.ticket.Key != nil {
		return c.ticket.Key.ID.String()
	}
	return c.ticket.Resource
}

// replayKey replays what made or changed a key.
func replayKey(c *call, id string) (*KeyResponse, error) {
	key, err := c.service.Replay(c.context, &c.ticket, c.route.Op, id)
	if err != nil {
		return nil, err
	}
	if c.route.Success == http.StatusCreated {
		c.createdKey(key.ID)
	}
	return c.key(key), nil
}
