package audit

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// SignedHead is a head with what proves that the journal had it.
type SignedHead struct {
	Node string // of the journal
	Head
	Time       time.Time // when it was signed
	Algorithm  kms.Algorithm
	KeyVersion uint32
	Signature  []byte // of HeadMessage, as Algorithm makes it; ECDSA and SM2 in DER
}

// The files of signed heads; see the package comment.
const (
	headDomain   = "sluice-head-1"
	headsPrefix  = "heads-"
	headsSuffix  = ".slh"
	headKeysFile = "heads-keys.pem"
	// maxHeadLine bounds a line: all its fields at their longest take 400
	// bytes.
	maxHeadLine = 1 << 10
)

// HeadMessage is what is signed of a head:
//
//	"sluice-head-1" ‖ u8 length of node ‖ node ‖ u64 sequence ‖ hash ‖ u64 Unix nanoseconds
func HeadMessage(h SignedHead) []byte {
	b := append(make([]byte, 0, 128), headDomain...)
	b = append(b, byte(len(h.Node)))
	b = append(b, h.Node...)
	b = binary.BigEndian.AppendUint64(b, h.Sequence)
	b = append(b, h.Hash[:]...)
	return binary.BigEndian.AppendUint64(b, uint64(h.Time.UnixNano()))
}

// headLine is a signed head as it stands in a file.
type headLine struct {
	Node      string `json:"node"`
	Sequence  uint64 `json:"seq"`
	Hash      string `json:"hash"`
	Time      string `json:"t"`
	Algorithm string `json:"alg"`
	Version   uint32 `json:"ver"`
	Signature string `json:"sig"`
}

// Line returns the head as a line of JSON, with its end.
func (h SignedHead) Line() []byte {
	b, err := json.Marshal(headLine{
		Node: h.Node, Sequence: h.Sequence, Hash: h.Hash.String(), Time: h.Time.UTC().Format(time.RFC3339Nano),
		Algorithm: string(h.Algorithm), Version: h.KeyVersion, Signature: base64.StdEncoding.EncodeToString(h.Signature),
	})
	if err != nil {
		panic(err) // texts and numbers only
	}
	return append(b, '\n')
}

var errHeadLine = errors.New("is no signed head")

// parseHeadLine reads a line with its end and accepts only what Line makes.
func parseHeadLine(line []byte) (SignedHead, error) {
	var l headLine
	if err := json.Unmarshal(line, &l); err != nil {
		return SignedHead{}, errHeadLine
	}
	h := SignedHead{Node: l.Node, Algorithm: kms.Algorithm(l.Algorithm), KeyVersion: l.Version}
	hash, err := hex.DecodeString(l.Hash)
	if err != nil || len(hash) != hashSize {
		return SignedHead{}, errHeadLine
	}
	h.Head = Head{Sequence: l.Sequence, Hash: Hash(hash)}
	if h.Time, err = time.Parse(time.RFC3339Nano, l.Time); err != nil {
		return SignedHead{}, errHeadLine
	}
	if h.Signature, err = base64.StdEncoding.DecodeString(l.Signature); err != nil {
		return SignedHead{}, errHeadLine
	}
	if !validNode(h.Node) || h.Sequence == 0 || !bytes.Equal(h.Line(), line) {
		return SignedHead{}, errHeadLine
	}
	return h, nil
}

// ReadHeads reads a file of signed heads, such as an anchor file, without
// looking at their signatures. Lines that are none, as a full disk leaves them,
// are passed over; a file without any head is an error.
func ReadHeads(path string) ([]SignedHead, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading signed heads: %w", err)
	}
	var heads []SignedHead
	for line := range bytes.Lines(content) {
		if h, err := parseHeadLine(line); err == nil {
			heads = append(heads, h)
		}
	}
	if len(heads) == 0 {
		return nil, errors.New("reading signed heads: the file holds none")
	}
	return heads, nil
}

// headsName returns the name of the file with the heads of a segment's records.
func headsName(segment uint64) string {
	return strings.TrimSuffix(headsPrefix+strings.TrimPrefix(segmentName(segment), segmentPrefix), segmentSuffix) + headsSuffix
}

// IsFile tells whether a name is that of a file of a journal: a segment, the
// heads of one, or the public keys. A copy of the journal has all of them.
func IsFile(name string) bool {
	if _, ok := parseSegmentName(name); ok || name == headKeysFile {
		return true
	}
	digits, ok := strings.CutPrefix(name, headsPrefix)
	if !ok {
		return false
	}
	segment, ok := parseSegmentName(segmentPrefix + strings.TrimSuffix(digits, headsSuffix) + segmentSuffix)
	return ok && headsName(segment) == name
}

// headFile is the file to which the heads of a segment are appended. It
// belongs to one goroutine.
type headFile struct {
	dir     string
	segment uint64
	file    *os.File // nil: none yet
}

// append appends a head durably. After an error the file is opened anew by the
// next one, which cuts off what was not written whole.
func (f *headFile) append(segment uint64, h SignedHead) error {
	if f.file == nil || f.segment != segment {
		if err := f.open(segment); err != nil {
			return err
		}
	}
	_, err := f.file.Write(h.Line())
	if err == nil {
		err = datasync(f.file)
	}
	if err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

func (f *headFile) open(segment uint64) error {
	if err := f.close(); err != nil {
		return err
	}
	path := filepath.Join(f.dir, headsName(segment))
	file, err := appendTo(path)
	if err != nil {
		return err
	}
	f.file, f.segment = file, segment
	return nil
}

func (f *headFile) close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// appendTo opens a file of heads for appending, which it makes if it is
// missing. What a crash left of the last line is cut off; damage that is
// longer than a line stays, for Verify to name.
func appendTo(path string) (*os.File, error) {
	_, err := os.Stat(path)
	made := errors.Is(err, fs.ErrNotExist)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, fileMode)
	if err != nil {
		return nil, err
	}
	if err = file.Chmod(fileMode); err == nil {
		err = cutTornLine(file)
	}
	if err == nil && made {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func cutTornLine(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	from := max(0, info.Size()-2*maxHeadLine)
	tail := make([]byte, info.Size()-from)
	if _, err := file.ReadAt(tail, from); err != nil {
		return err
	}
	if whole := wholeLines(tail, from > 0); len(tail)-whole <= maxHeadLine {
		return file.Truncate(from + int64(whole))
	}
	_, err = file.Write([]byte{'\n'})
	return err
}

// wholeLines returns the length of what is in tail up to the end of the last
// line that is a head. inside says that tail begins inside a line.
func wholeLines(tail []byte, inside bool) int {
	end, at := 0, 0
	for line := range bytes.Lines(tail) {
		at += len(line)
		_, err := parseHeadLine(line)
		if err == nil || inside {
			end = at
		}
		inside = false
	}
	return end
}

// appendKey appends a PEM block to the file of public keys, unless it is there.
func appendKey(dir string, block []byte) error {
	path := filepath.Join(dir, headKeysFile)
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if bytes.Contains(content, block) {
		return nil
	}
	temporary := path + temporarySuffix
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(slices.Concat(content, block))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(dir)
}

// HeadKeys returns the public keys with which the heads of the journal in dir
// were signed, as PEM: what an auditor keeps elsewhere from the beginning.
func HeadKeys(dir string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(dir, headKeysFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("no head of the journal was signed yet")
	}
	return content, err
}

// AnchorFile appends signed heads to a file, which may be in another machine's
// or a write-once file system. The file is opened for each head, so that it
// can be taken away and its mount be made again; each is synced.
func AnchorFile(path string) func(SignedHead) error {
	return func(h SignedHead) error {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
		if err != nil {
			return err
		}
		_, err = file.Write(h.Line())
		if err == nil {
			err = file.Sync()
		}
		return errors.Join(err, file.Close())
	}
}
