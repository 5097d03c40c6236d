package kms

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json" // which, unlike its second version, has a form for durations
	"errors"
	"io"
	"uuid"
)

// What is stored of a chunk is sealed with AES-256-GCM under the data key of the
// job:
//
//	nonce 12 | ciphertext | tag 16
//
// The additional data is "SLJ1" and then tenant, job, number of the chunk,
// direction and pass, each with its length before it (u32be), so that nothing of
// another chunk, direction or pass opens in this one's place. What is encrypted
// is 32 zero bytes and then the lines: see the envelope for why. A job seals some
// thousand times, far below what random nonces allow.
const jobFormat = "SLJ1"

// The directions.
const (
	jobInput   = "input"
	jobOutput  = "output"
	jobEntries = "entries"
)

// jobKeyName names a job's data key to Device.Seal; its version is 1.
func jobKeyName(id uuid.UUID) string { return "job " + id.String() }

// jobBox seals and opens what is stored of one job's chunks.
type jobBox struct {
	tenant, job uuid.UUID
	key         [dataKeySize]byte
}

// newJobBox makes the data key of a new job, and fills in its DataKey.
func (s *Service) newJobBox(ctx context.Context, t *Tenant, j *Job) (*jobBox, error) {
	b := &jobBox{tenant: j.Tenant, job: j.ID}
	rand.Read(b.key[:])
	var err error
	j.DataKey, err = s.device.Seal(ctx, t.Sealing, jobKeyName(j.ID), 1, b.key[:])
	return b, err
}

// openJobBox opens the data key of a job; KindHSMUnavailable when it is not at
// hand and no HSM opens it.
func (s *Service) openJobBox(ctx context.Context, t *Tenant, j *Job) (*jobBox, error) {
	b := &jobBox{tenant: j.Tenant, job: j.ID}
	id := dataKeyID{j.Tenant, j.ID, 1}
	if s.dataKeys.get(id, s.clock(), &b.key) {
		return b, nil
	}
	opened, err := s.device.Unseal(ctx, t.Sealing, jobKeyName(j.ID), 1, j.DataKey)
	if err != nil {
		return nil, err
	}
	defer clear(opened)
	if copy(b.key[:], opened) != dataKeySize {
		return nil, errJobContent
	}
	s.dataKeys.put(id, s.clock(), &b.key)
	return b, nil
}

// close wipes the key.
func (b *jobBox) close() { clear(b.key[:]) }

func (b *jobBox) aad(c *JobChunk, direction string, pass uint32) []byte {
	var number, passes [4]byte
	binary.BigEndian.PutUint32(number[:], uint32(c.Number))
	binary.BigEndian.PutUint32(passes[:], pass)
	text := []byte(jobFormat)
	for _, part := range lengthPrefixed([][]byte{b.tenant[:], b.job[:], number[:], []byte(direction), passes[:]}) {
		text = append(text, part...)
	}
	return text
}

// seal seals lines, which it wipes.
func (b *jobBox) seal(c *JobChunk, direction string, pass uint32, lines []byte) ([]byte, error) {
	defer clear(lines)
	aead, err := secretAEAD(b.key[:])
	if err != nil {
		return nil, err
	}
	plain := make([]byte, commitmentSize+len(lines))
	defer clear(plain)
	copy(plain[commitmentSize:], lines)
	nonce := make([]byte, nonceSize, nonceSize+len(plain)+tagSize)
	rand.Read(nonce)
	return aead.Seal(nonce, nonce, plain, b.aad(c, direction, pass)), nil
}

// errJobContent says that what is stored of a job does not open: somebody
// changed the database past its codes.
var errJobContent = &Error{Kind: KindInternal, Detail: "the stored items of a job cannot be opened", Err: errors.New("what is sealed of a job is not authentic")}

// open returns lines, which the caller wipes.
func (b *jobBox) open(c *JobChunk, direction string, pass uint32, sealed []byte) ([]byte, error) {
	aead, err := secretAEAD(b.key[:])
	if err != nil || len(sealed) < nonceSize {
		return nil, errJobContent
	}
	plain, err := aead.Open(nil, sealed[:nonceSize], sealed[nonceSize:], b.aad(c, direction, pass))
	if err != nil || len(plain) < commitmentSize || subtle.ConstantTimeCompare(plain[:commitmentSize], make([]byte, commitmentSize)) != 1 {
		clear(plain)
		return nil, errJobContent
	}
	return plain[commitmentSize:], nil
}

// splitLines returns the lines of a text, each of which a line feed ends. They
// alias it.
func splitLines(text []byte) [][]byte {
	lines := bytes.Split(text, []byte{'\n'})
	return lines[:len(lines)-1]
}

// joinLines is the other way round.
func joinLines(lines [][]byte) []byte {
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	text := make([]byte, 0, size)
	for _, line := range lines {
		text = append(append(text, line...), '\n')
	}
	return text
}

// encodeEntries writes entries, one a line, and compresses them: they are much
// alike, and nothing in them is secret.
func encodeEntries(entries []*Entry) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	e := json.NewEncoder(w)
	for i, entry := range entries {
		if err := e.Encode(entry); err != nil {
			return nil, err
		}
		polite(i)
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func decodeEntries(text []byte) ([]*Entry, error) {
	var entries []*Entry
	for d := json.NewDecoder(flate.NewReader(bytes.NewReader(text))); ; {
		e := new(Entry)
		switch err := d.Decode(e); {
		case err == io.EOF:
			return entries, nil
		case err != nil:
			return nil, errJobContent
		}
		entries = append(entries, e)
	}
}
