package keystore

import (
	"context"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// The parameters and rows of probes.
type (
	WantEndpointsParams struct {
		URLs       []string
		Due, Until Timestamp
	}
	EndpointsParams      struct{ URLs []string }
	ClaimEndpointsParams struct {
		Now, Until Timestamp
		Limit      int
	}
	EndProbeParams struct {
		URL    string
		Misses int
		Due    Timestamp
	}
	DeleteEndpointsParams struct {
		Now   Timestamp
		Limit int
	}
)

// EndpointRow is a probed endpoint as it was found.
type EndpointRow struct {
	URL    Text
	Misses Integer
	Wanted Integer
}

// WantEndpoints implements kms.EndpointProbes.
func (s *Store) WantEndpoints(ctx context.Context, urls []string, until time.Time) error {
	for _, url := range urls {
		if url == "" || len(url) > kms.MaxBaseURL || !storableText(url) {
			return errArgument("url", reasonRange)
		}
	}
	return translate(s.driver.WantEndpoints(ctx, WantEndpointsParams{URLs: urls, Due: timestamp(s.now()), Until: timestamp(until)}))
}

// Endpoints implements kms.EndpointProbes.
func (s *Store) Endpoints(ctx context.Context, urls []string) ([]kms.Endpoint, error) {
	rows, err := s.driver.Endpoints(ctx, EndpointsParams{URLs: urls})
	return s.endpoints(rows, err)
}

// ClaimEndpoints implements kms.EndpointProbes.
func (s *Store) ClaimEndpoints(ctx context.Context, lease time.Duration, limit int) ([]kms.Endpoint, error) {
	now := s.now()
	rows, err := s.driver.ClaimEndpoints(ctx, ClaimEndpointsParams{Now: timestamp(now), Until: timestamp(now.Add(lease)), Limit: limit})
	return s.endpoints(rows, err)
}

// EndProbe implements kms.EndpointProbes.
func (s *Store) EndProbe(ctx context.Context, url string, misses int, due time.Time) error {
	return translate(s.driver.EndProbe(ctx, EndProbeParams{URL: url, Misses: misses, Due: timestamp(due)}))
}

// endpoints makes endpoints of rows. Damaged ones are reported to the log and
// left out: nothing is known of them.
func (s *Store) endpoints(rows []*EndpointRow, err error) ([]kms.Endpoint, error) {
	if err != nil {
		return nil, translate(err)
	}
	list := make([]kms.Endpoint, 0, len(rows))
	for _, r := range rows {
		d := newDecoder(ObjectEndpoint, uuid.Nil(), uuid.Nil())
		e := kms.Endpoint{URL: d.text(r.URL, "url"), Misses: int(d.integer(r.Misses, "misses", 0, 1<<31)), Wanted: d.time(r.Wanted, "wanted")}
		if err := d.result(); err != nil {
			s.damaged(err)
			continue
		}
		list = append(list, e)
	}
	return list, nil
}
