package api

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"

	"github.com/sluice-kms/sluice/kms"
)

// maxChunkAnswer bounds the bytes of the results of a job's chunk, as
// maxBatchAnswer does those of a batch, far below what is stored of one.
const maxChunkAnswer = maxBatchAnswer

// politely is how many items are read before others have their turn.
const politely = 16

// ofItems: one level below that of a batch's items, and the members of one.
var ofItems = structure{depth: ordinary.depth + 1, elements: 64}

// readItem splits a line into its item, which aliases it.
func readItem(line []byte) (itemText, error) {
	if _, err := ofItems.check(line); err != nil {
		return itemText{}, err
	}
	r := batchReader{text: line, json: jsontext.NewDecoder(bytes.NewBuffer(line))}
	item, err := r.item()
	if err == nil {
		if _, err = r.json.ReadToken(); err == io.EOF {
			return item, nil
		} else if err == nil {
			err = errItemShape
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if isSyntax(err) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errItemShape
	}
	return item, err
}

var errItemShape = kms.Errorf(kms.KindMalformed, "must be one JSON object with op, key and the fields of the operation")

// checkItem tells of what operation a line of a job is, or what is wrong with it,
// before any item is run. The line is changed.
func (s *Server) checkItem(line []byte) (kms.Op, error) {
	item, err := readItem(line)
	if err != nil {
		return "", err
	}
	if err := item.check(s); err != nil {
		return "", err
	}
	route := s.items[item.op]
	return route.Op, route.valid(item.body(line))
}

// jobCalls are the items of a chunk as calls of their own routes.
type jobCalls struct {
	server   *Server
	texts    [][]byte // of the items, which are changed
	items    []batchItem
	run      []kms.BatchItem
	answered atomic.Int64
}

// JobCalls implements kms.JobItems.
func (s *Server) JobCalls(ctx context.Context, _ *kms.Ticket, lines [][]byte) kms.JobCalls {
	j := &jobCalls{server: s, texts: lines, items: make([]batchItem, len(lines)), run: make([]kms.BatchItem, len(lines))}
	for i, line := range lines {
		// It was checked when it came in.
		text, err := readItem(line)
		if err != nil {
			text.fault = err
		}
		item := &j.items[i]
		s.openItem(ctx, item, text, &j.run[i])
		if i%politely == politely-1 {
			runtime.Gosched() // it takes a while, and somebody may wait
		}
		j.run[i].Do = func(ctx context.Context) error { return s.runItem(ctx, item, line, &j.answered, maxChunkAnswer) }
	}
	return j
}

// Items implements kms.JobCalls.
func (j *jobCalls) Items() []kms.BatchItem { return j.run }

// Result implements kms.JobCalls.
func (j *jobCalls) Result(place int, index int64) []byte {
	item := &j.items[place]
	w := &writer{newBuffer(resultRoom + memberRoom)}
	defer w.b.release()
	w.raw("{")
	w.number("index", uint32(index))
	if err := j.run[place].Err; err != nil {
		item.call.problemTo(w, err)
	} else {
		w.number("status", http.StatusOK)
		w.member("result", item.answer.bytes)
	}
	charge := item.call.charge()
	w.charge(&charge)
	w.raw("}")
	return bytes.Clone(w.b.bytes)
}

// Release implements kms.JobCalls.
func (j *jobCalls) Release() {
	for i := range j.items {
		j.items[i].answer.release()
	}
}

var _ kms.JobItems = (*Server)(nil)
