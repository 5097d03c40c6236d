package audit

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sluice-kms/sluice/kms"
)

// testHSM signs heads; it can be away and can have its key rotated.
type testHSM struct {
	keys []*ecdsa.PrivateKey
	away atomic.Bool
}

func newTestHSM(t testing.TB) *testHSM {
	h := &testHSM{}
	h.rotate(t)
	return h
}

func (h *testHSM) rotate(t testing.TB) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	h.keys = append(h.keys, key)
}

var errAway = errors.New("the HSM is away")

func (h *testHSM) sign(_ context.Context, message []byte) (HeadSignature, error) {
	if h.away.Load() {
		return HeadSignature{}, errAway
	}
	key := h.keys[len(h.keys)-1]
	digest := sha256.Sum256(message)
	signature, err := ecdsa.SignASN1(rand.Reader, key, digest[:])
	if err != nil {
		return HeadSignature{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	return HeadSignature{Algorithm: kms.AlgECDSASHA256, KeyVersion: uint32(len(h.keys)), PublicKey: public, Signature: signature}, err
}

// signed checks a head with the keys.
func (h *testHSM) signed(head SignedHead) bool {
	digest := sha256.Sum256(HeadMessage(head))
	for _, key := range h.keys {
		if ecdsa.VerifyASN1(&key.PublicKey, digest[:], head.Signature) {
			return true
		}
	}
	return false
}

func startTestSigner(t testing.TB, l *Log, h *testHSM, anchors ...Anchor) *Signer {
	t.Helper()
	s, err := l.StartSigner(SignerConfig{Sign: h.sign, Anchors: anchors, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func verifySigned(t testing.TB, dir string, h *testHSM, o VerifyOptions) Report {
	t.Helper()
	o.Signed = h.signed
	report, err := Verify(dir, o)
	if err != nil {
		t.Fatal(err, report.Faults)
	}
	return report
}

func TestHeadIsSignedEverySecondInWhichItChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		l, h := mustOpen(t, c), newTestHSM(t)
		s := startTestSigner(t, l, h)
		for i := range 5 {
			mustRecord(t, l, testEntry(i))
			time.Sleep(signInterval)
			synctest.Wait()
			if got, _ := s.Signed(); got.Head != l.Head() {
				t.Errorf("after a second the signed head is %d, the journal's %d", got.Sequence, l.Head().Sequence)
			}
		}
		time.Sleep(time.Minute) // nothing new to sign
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		heads, err := ReadHeads(filepath.Join(c.Dir, headsName(1)))
		if err != nil || len(heads) != 5 {
			t.Errorf("%d heads were signed for 5 entries, %v", len(heads), err)
		}
		report := verifySigned(t, c.Dir, h, VerifyOptions{})
		if report.Signed != report.Head || report.Unsigned != 0 {
			t.Errorf("signed up to %d of %d", report.Signed.Sequence, report.Head.Sequence)
		}
	})
}

func TestCloseSignsRefusalsThatWereCounted(t *testing.T) {
	c := testConfig(t)
	l, h := mustOpen(t, c), newTestHSM(t)
	s := startTestSigner(t, l, h)
	for range 2 * floodRate {
		mustRecord(t, l, refusal(1))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	report := verifySigned(t, c.Dir, h, VerifyOptions{})
	if report.Head.Sequence <= floodRate {
		t.Errorf("the journal ends with record %d: nothing was aggregated", report.Head.Sequence)
	}
}

func TestJournalGoesOnWithoutTheHSMAndTheGapShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(t)
		l, h := mustOpen(t, c), newTestHSM(t)
		metrics := prometheus.NewRegistry()
		s, err := l.StartSigner(SignerConfig{Sign: h.sign, Log: slog.New(slog.DiscardHandler), Registerer: metrics})
		if err != nil {
			t.Fatal(err)
		}
		now := func(i int) *kms.Entry { e := testEntry(i); e.Time = time.Now(); return e }
		mustRecord(t, l, now(1))
		time.Sleep(signInterval)
		synctest.Wait()
		h.away.Store(true)
		mustRecord(t, l, now(2), now(3))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := testutil.ToFloat64(s.metrics.unsigned); got < 59 || got > 60 {
			t.Errorf("after a minute the metric says that nothing was signed for %v s", got)
		}
		if got := testutil.ToFloat64(s.metrics.failures.WithLabelValues(sinkSign)); got < 59 {
			t.Errorf("%v failures were counted", got)
		}
		h.away.Store(false)
		time.Sleep(signInterval)
		synctest.Wait()
		if got := testutil.ToFloat64(s.metrics.unsigned); got != 0 {
			t.Errorf("when all is signed the metric says %v s", got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		report := verifySigned(t, c.Dir, h, VerifyOptions{})
		if len(report.Gaps) != 1 || report.Gaps[0].First != 2 || report.Gaps[0].Last != 3 || report.Gaps[0].Delay < time.Minute {
			t.Errorf("gaps %+v, want one of the records 2 and 3 and a minute", report.Gaps)
		}
	})
}

func TestSigningIsOnNoRequestsPath(t *testing.T) {
	l := mustOpen(t, testConfig(t))
	hangs, begun := make(chan struct{}), make(chan struct{}, 16)
	s, err := l.StartSigner(SignerConfig{Log: slog.New(slog.DiscardHandler),
		Sign: func(context.Context, []byte) (HeadSignature, error) {
			begun <- struct{}{}
			<-hangs
			return HeadSignature{}, errAway
		}})
	if err != nil {
		t.Fatal(err)
	}
	mustRecord(t, l, testEntry(1))
	<-begun
	for i := range 100 {
		mustRecord(t, l, testEntry(2+i)) // while the HSM hangs in a call
	}
	close(hangs)
	if err := s.Close(); !errors.Is(err, errAway) {
		t.Errorf("closed with %v", err)
	}
	mustClose(t, l)
}

func TestRotatedKeyKeepsOldHeadsVerifiable(t *testing.T) {
	c := testConfig(t)
	h := newTestHSM(t)
	for i := range 3 {
		l := mustOpen(t, c)
		s := startTestSigner(t, l, h)
		mustRecord(t, l, testEntry(i))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		h.rotate(t)
	}
	verifySigned(t, c.Dir, h, VerifyOptions{})
	heads, err := ReadHeads(filepath.Join(c.Dir, headsName(1)))
	if err != nil || heads[0].KeyVersion != 1 || heads[len(heads)-1].KeyVersion != 3 {
		t.Errorf("heads %+v, %v", heads, err)
	}
	keys, err := HeadKeys(c.Dir)
	if got := bytes.Count(keys, []byte("BEGIN PUBLIC KEY")); got != 3 || err != nil {
		t.Errorf("%d public keys are beside the journal, %v; want 3", got, err)
	}
}

func TestHeadsOfASegmentLieBesideIt(t *testing.T) {
	c := testConfig(t)
	c.SegmentBytes = 5000
	l, h := mustOpen(t, c), newTestHSM(t)
	s := startTestSigner(t, l, h)
	s.cancel() // it signs when it is told to
	s.ended.Wait()
	for i := range tamperedEntries {
		mustRecord(t, l, testEntry(i))
		if err := s.sign(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	var all []SignedHead
	for _, name := range segments(t, c.Dir) {
		first, _ := parseSegmentName(name)
		heads, err := ReadHeads(filepath.Join(c.Dir, headsName(first)))
		if err != nil || heads[0].Sequence != first {
			t.Errorf("beside %s: %v, %v", name, heads, err)
		}
		all = append(all, heads...)
	}
	if all[len(all)-1].Head != l.Head() {
		t.Error("the last head is not signed")
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != fileMode || !IsFile(e.Name()) {
			t.Errorf("%s has mode %v and is a file of the journal: %v, %v", e.Name(), info.Mode(), IsFile(e.Name()), err)
		}
	}
}

func TestTornLineOfHeadsIsCutOff(t *testing.T) {
	for _, torn := range []string{`{"node":"node-1","seq":`, "\x00\x00\x00\x00", "x\ny\n"} {
		c := testConfig(t)
		h := newTestHSM(t)
		for i := range 2 {
			l := mustOpen(t, c)
			s := startTestSigner(t, l, h)
			mustRecord(t, l, testEntry(i))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			mustClose(t, l)
			if i == 0 {
				path := filepath.Join(c.Dir, headsName(1))
				content, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, append(content, torn...))
			}
		}
		verifySigned(t, c.Dir, h, VerifyOptions{})
	}
}

func TestAnchorsGetTheNewestHead(t *testing.T) {
	c := testConfig(t)
	l, h := mustOpen(t, c), newTestHSM(t)
	path := filepath.Join(t.TempDir(), "anchors")
	file := AnchorFile(path)
	broken := Anchor{Name: "broken", Put: func(context.Context, SignedHead) error { return errAway }}
	s := startTestSigner(t, l, h, broken,
		Anchor{Name: "file", Put: func(_ context.Context, head SignedHead) error { return file(head) }})
	mustRecord(t, l, testEntry(1), testEntry(2))
	err := s.Close()
	if !errors.Is(err, errAway) || !strings.Contains(err.Error(), "broken") {
		t.Errorf("with an anchor that fails the signer closed with %v", err)
	}
	mustClose(t, l)
	anchors, err := ReadHeads(path)
	if err != nil || anchors[len(anchors)-1].Head != l.Head() {
		t.Fatalf("anchors %v, %v", anchors, err)
	}
	verifySigned(t, c.Dir, h, VerifyOptions{Anchors: anchors})
}

func TestOnlyWhatLineMakesIsAHead(t *testing.T) {
	h := newTestHSM(t)
	head := SignedHead{Node: "node-1", Head: Head{Sequence: 7, Hash: Hash{1}}, Time: time.Unix(1, 2).UTC()}
	made, err := h.sign(t.Context(), HeadMessage(head))
	if err != nil {
		t.Fatal(err)
	}
	head.Algorithm, head.KeyVersion, head.Signature = made.Algorithm, made.KeyVersion, made.Signature
	line := head.Line()
	got, err := parseHeadLine(line)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(head) {
		t.Fatalf("read back as %+v, %v", got, err)
	}
	for i := range line {
		for bit := range 8 {
			flipped := bytes.Clone(line)
			flipped[i] ^= 1 << bit
			// What still is a line is another head, which nobody signed.
			// Algorithm and version are not signed: they say how to check.
			if got, err := parseHeadLine(flipped); err == nil && h.signed(got) &&
				got.Algorithm == head.Algorithm && got.KeyVersion == head.KeyVersion {
				t.Fatalf("bit %d of byte %d (%q) flipped: still signed", bit, i, line[i])
			}
		}
	}
}
