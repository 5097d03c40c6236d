package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// The layout of a segment; see the package comment.
const (
	magic         = "SLUICEJL"
	formatVersion = 1
	headerSize    = 128
	maxNodeLength = 64
	frameSize     = 8 // length and checksum before the payload
	hashSize      = 32

	recordDomain  = "sluice-journal-1"
	segmentDomain = "sluice-segment-1"

	segmentPrefix = "journal-"
	segmentSuffix = ".slj"
	sequenceWidth = 20 // digits of the largest uint64

	temporarySuffix = ".tmp"
)

// Hash is the chain hash of a record.
type Hash [hashSize]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ChainHash is the hash function of a segment's chain.
type ChainHash uint8

// The hash functions, as they stand in headers. The zero value is SHA-256.
const (
	ChainSHA256 ChainHash = 1
	ChainSM3    ChainHash = 2 // GB/T 32905
)

// NewHash makes a hash of 32 bytes. SM3 is not in the standard library, so who
// writes or reads segments that are chained with it brings it.
type NewHash func() hash.Hash

// in returns what computes the function, given SM3 or nil.
func (c ChainHash) in(sm3 NewHash) (NewHash, error) {
	switch {
	case c == ChainSHA256:
		return sha256.New, nil
	case c == ChainSM3 && sm3 != nil:
		return sm3, nil
	case c == ChainSM3:
		return nil, errors.New("the chain is of SM3, which is not available here")
	}
	return nil, errors.New("the chain is of an unknown hash function")
}

// first returns the hash that was brought, nil for none.
func first(sm3 []NewHash) NewHash {
	if len(sm3) == 0 {
		return nil
	}
	return sm3[0]
}

// Head names a record and, through its hash, everything before it. The zero
// Head is that of an empty journal.
type Head struct {
	Sequence uint64
	Hash     Hash
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segmentName returns the file name of the segment that begins with the record.
func segmentName(first uint64) string {
	return fmt.Sprintf("%s%0*d%s", segmentPrefix, sequenceWidth, first, segmentSuffix)
}

// parseSegmentName returns the first sequence in a segment's name.
func parseSegmentName(name string) (first uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, segmentPrefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, segmentSuffix)
	if !ok || len(digits) != sequenceWidth {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 10, 64)
	return first, err == nil && segmentName(first) == name
}

// listSegments returns the names of the folder's segments, the oldest first.
func listSegments(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the journal: %w", err)
	}
	var names []string
	for _, e := range entries {
		if _, ok := parseSegmentName(e.Name()); ok {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names) // digits of one width: by sequence
	return names, nil
}

// header describes a segment.
type header struct {
	chain    ChainHash
	node     string
	first    uint64
	previous Hash
	created  time.Time
}

func (h *header) encode() [headerSize]byte {
	var b [headerSize]byte
	copy(b[0:8], magic)
	binary.BigEndian.PutUint16(b[8:10], formatVersion)
	b[10] = byte(h.chain)
	b[11] = byte(len(h.node))
	copy(b[12:76], h.node)
	binary.BigEndian.PutUint64(b[76:84], h.first)
	copy(b[84:116], h.previous[:])
	binary.BigEndian.PutUint64(b[116:124], uint64(h.created.UnixNano()))
	binary.BigEndian.PutUint32(b[124:128], crc32.Checksum(b[:124], castagnoli))
	return b
}

// parseHeader reads a header and accepts only what encode makes.
func parseHeader(b [headerSize]byte) (header, error) {
	switch {
	case string(b[0:8]) != magic:
		return header{}, errors.New("is not a journal segment")
	case binary.BigEndian.Uint16(b[8:10]) != formatVersion:
		return header{}, errors.New("has an unknown format version")
	case ChainHash(b[10]) != ChainSHA256 && ChainHash(b[10]) != ChainSM3:
		return header{}, errors.New("has an unknown hash algorithm")
	case binary.BigEndian.Uint32(b[124:128]) != crc32.Checksum(b[:124], castagnoli):
		return header{}, errors.New("has a header that fails its checksum")
	}
	node := string(b[12 : 12+min(int(b[11]), maxNodeLength)])
	h := header{
		chain:    ChainHash(b[10]),
		node:     node,
		first:    binary.BigEndian.Uint64(b[76:84]),
		previous: Hash(b[84:116]),
		created:  time.Unix(0, int64(binary.BigEndian.Uint64(b[116:124]))),
	}
	if !validNode(node) || h.encode() != b || h.first == 0 || (h.first == 1) != (h.previous == Hash{}) {
		return header{}, errors.New("has a header that contradicts itself")
	}
	return h, nil
}

// validNode tells whether a node of that name can keep a journal.
func validNode(node string) bool {
	return len(node) <= maxNodeLength && kms.ValidName(node)
}

// chain computes chain hashes. It belongs to one goroutine.
type chain struct {
	state hash.Hash
	// scratch is what is hashed before the payload: domain, previous hash,
	// sequence.
	scratch [len(recordDomain) + hashSize + 8]byte
	sum     Hash // what is returned, here so that it need not be allocated
}

func newChain(h NewHash) *chain {
	c := &chain{state: h()}
	copy(c.scratch[:], recordDomain)
	return c
}

// seed returns what takes the place of the previous hash for the first record
// of the segment with the given header.
func (c *chain) seed(header [headerSize]byte) Hash {
	c.state.Reset()
	c.state.Write([]byte(segmentDomain))
	c.state.Write(header[:])
	c.state.Sum(c.sum[:0])
	return c.sum
}

// next returns the chain hash of the record with the sequence and payload
// that follows previous.
func (c *chain) next(previous Hash, sequence uint64, payload []byte) Hash {
	copy(c.scratch[len(recordDomain):], previous[:])
	binary.BigEndian.PutUint64(c.scratch[len(recordDomain)+hashSize:], sequence)
	c.state.Reset()
	c.state.Write(c.scratch[:])
	c.state.Write(payload)
	c.state.Sum(c.sum[:0])
	return c.sum
}

// sealFrame fills in the frame before a payload: record[frameSize:].
func sealFrame(record []byte) {
	binary.BigEndian.PutUint32(record[0:4], uint32(len(record)-frameSize))
	binary.BigEndian.PutUint32(record[4:8], checksum(record[0:4], record[frameSize:]))
}

// checksum is the CRC-32C of a record's length field and payload.
func checksum(length, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(length, castagnoli), castagnoli, payload)
}
