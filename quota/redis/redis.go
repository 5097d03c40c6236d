// Package redis is a quota.Backing on Redis 7: standalone, cluster, or with
// replicas that Sentinels fail over to.
//
// Each tenant is one hash, whose name has the tenant's id as hash tag, and each
// claim one call of one script, so that a claim takes effect whole. The calls
// of a tick travel together. The script knows the time from Redis and no
// clock but that; it remembers each node's last claim by epoch and sequence, so
// that a claim which is repeated counts once.
//
// Redis holds nothing that cannot be lost: see quota.Share for what follows
// then. What it answers is not trusted either: the engine takes no more of it
// than it asked for.
package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-kms/sluice/quota"
)

//go:embed share.lua
var source string

// prefix begins the names of all keys.
const prefix = "sluice:quota:"

// Config says where Redis is.
type Config struct {
	Addresses []string // host:port; of several nodes of a cluster, any; of Sentinels
	Cluster   bool
	// Master is the name by which Sentinels know the master; "": Addresses are
	// the servers'.
	Master             string
	Username, Password string
	// SentinelUsername and SentinelPassword authenticate to the Sentinels.
	SentinelUsername, SentinelPassword string
	TLS                                *tls.Config // nil: none
	// Dial bounds a connection's setup; calls are bounded by their context.
	Dial time.Duration
}

// Store is the backing. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	script *redis.Script
}

var _ quota.Backing = (*Store)(nil)

// ErrEviction means that Redis may drop what it holds when its memory is full:
// maxmemory-policy must be noeviction.
var ErrEviction = errors.New("redis: maxmemory-policy is not noeviction: limits could be evicted")

// connections are enough for the exchanges of one engine, of which there is
// one at a time.
const connections = 4

// quiet ends what go-redis prints of its own accord: what counts of it is in
// the errors that Exchange returns.
type quiet struct{}

// Printf implements go-redis's logger.
func (quiet) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

// Open connects, and checks that Redis keeps what it is given. A Redis that is
// away is an error here, and no longer one once a store is open.
func Open(ctx context.Context, c Config) (*Store, error) {
	silence()
	options := &redis.UniversalOptions{
		Addrs: c.Addresses, IsClusterMode: c.Cluster, MasterName: c.Master, Username: c.Username, Password: c.Password,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword, TLSConfig: c.TLS,
		DialTimeout: c.Dial, ContextTimeoutEnabled: true, PoolSize: connections,
		MaxRetries: -1, DialerRetries: 1, // the engine repeats claims itself
	}
	s := &Store{client: redis.NewUniversalClient(options), script: redis.NewScript(source)}
	if err := s.check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the connections.
func (s *Store) Close() error { return s.client.Close() }

// check asks every server that holds keys for its policy.
func (s *Store) check(ctx context.Context) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, checkServer)
	}
	return checkServer(ctx, s.client)
}

type informer interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
}

func checkServer[C informer](ctx context.Context, server C) error {
	info, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return fmt.Errorf("redis: ask for its memory policy: %w", err)
	}
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if policy, ok := strings.CutPrefix(lines.Text(), "maxmemory_policy:"); ok && policy == "noeviction" {
			return nil
		}
	}
	return ErrEviction
}

// Exchange implements quota.Backing.
func (s *Store) Exchange(ctx context.Context, claims []quota.Claim) ([]quota.Grant, error) {
	keys, args := make([][]string, len(claims)), make([][]any, len(claims))
	for i := range claims {
		keys[i], args[i] = encode(&claims[i])
	}
	calls := make([]*redis.Cmd, len(claims))
	pipe := s.client.Pipeline()
	for i := range claims {
		calls[i] = s.script.EvalSha(ctx, pipe, keys[i], args[i]...)
	}
	_, err := pipe.Exec(ctx)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		// A server that began anew does not know the script. Claims that took
		// effect are repeated, which does no harm.
		pipe = s.client.Pipeline()
		for i := range claims {
			calls[i] = s.script.Eval(ctx, pipe, keys[i], args[i]...)
		}
		_, err = pipe.Exec(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("redis: exchange %d claims: %w", len(claims), err)
	}
	grants := make([]quota.Grant, len(claims))
	for i, call := range calls {
		if grants[i], err = decode(call, len(claims[i].Lines)); err != nil {
			return nil, err
		}
	}
	return grants, nil
}

// encode makes a claim's key and arguments; see share.lua.
func encode(c *quota.Claim) (keys []string, args []any) {
	args = make([]any, 0, 5+len(c.Lines)*(1+lineArgs))
	args = append(args, c.Node, c.Epoch, c.Sequence, c.PeriodMs, c.SlotsMs)
	for i := range c.Lines {
		l := &c.Lines[i]
		args = append(args, l.Name, int64(l.Kind), l.Limit, l.PerSecond, l.Overdraft, l.Repay, l.Window, l.Pool, l.Notch,
			l.Returned, l.Extra, l.Ask, l.Head, l.Demand, l.Held, l.KnownBorn, l.Known, l.KnownPool, flag(l.KnownLowered), l.Weight)
	}
	return []string{prefix + "{" + c.Tenant.String() + "}"}, args
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// Numbers of a line in a call and in its answer, beside its name.
const (
	lineArgs    = 19
	lineAnswers = 7
)

// decode reads an answer.
func decode(call *redis.Cmd, lines int) (quota.Grant, error) {
	numbers, err := call.Int64Slice()
	if err != nil {
		return quota.Grant{}, fmt.Errorf("redis: the script's answer: %w", err)
	}
	if len(numbers) == 0 || (len(numbers)-1)%lineAnswers != 0 {
		return quota.Grant{}, fmt.Errorf("redis: the script answered %d numbers for %d lines", len(numbers), lines)
	}
	g := quota.Grant{Nodes: numbers[0], Lines: make([]quota.LineGrant, 0, lines)}
	for n := numbers[1:]; len(n) > 0; n = n[lineAnswers:] {
		g.Lines = append(g.Lines, quota.LineGrant{
			Tokens: n[0], PerSecond: n[1], Allocated: n[2], Left: n[3], Pool: n[4], Lowered: n[5] != 0, Born: n[6],
		})
	}
	return g, nil
}
