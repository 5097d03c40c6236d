package abuse

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// documentFormat is the first byte of a stored baseline. The rest is its fields
// in their order, big-endian, with the entries of the two tables that are in
// use after their number.
//
// Format 1 is without the frequencies; it is read as knowing none.
const (
	documentFormat = 2
	formatOne      = 1
)

// maxDocument bounds a stored baseline in bytes.
const maxDocument = 1 + 8 + 8 + 4*(4+operations+int(measureCount)+4+operations+hourBins) + 2 + (maxNetworks+maxClients)*13

var errDocument = errors.New("abuse: the stored baseline has another form")

// document encodes the baseline.
func (b *baseline) document() []byte {
	d := append(make([]byte, 0, maxDocument), documentFormat)
	d = binary.BigEndian.AppendUint64(d, uint64(b.born))
	d = binary.BigEndian.AppendUint64(d, uint64(b.at))
	for _, f := range append(b.numbers(), b.often.numbers()...) {
		d = binary.BigEndian.AppendUint32(d, math.Float32bits(*f))
	}
	for _, table := range [][]seen{b.networks[:], b.clients[:]} {
		used := slices.IndexFunc(table, func(s seen) bool { return s.hash == 0 })
		if used < 0 {
			used = len(table)
		}
		d = append(d, byte(used))
		for _, s := range table[:used] {
			d = binary.BigEndian.AppendUint32(d, s.hash)
			d = binary.BigEndian.AppendUint32(d, math.Float32bits(s.weight))
			d = binary.BigEndian.AppendUint32(d, s.since())
			suspect := byte(0)
			if s.suspect() {
				suspect = 1
			}
			d = append(d, suspect)
		}
	}
	return d
}

// numbers are the weights and measures that are stored one after the other.
func (b *baseline) numbers() []*float32 {
	list := []*float32{&b.calls, &b.size, &b.busiest, &b.windows}
	for i := range b.kinds {
		list = append(list, &b.kinds[i])
	}
	for i := range b.peaks {
		list = append(list, &b.peaks[i])
	}
	return list
}

// parseBaseline decodes what document has encoded. Numbers that no document has
// are refused: negative, infinite and such as are none.
func parseBaseline(d []byte) (b baseline, err error) {
	if len(d) < 17 || len(d) > maxDocument || d[0] != documentFormat && d[0] != formatOne {
		return b, errDocument
	}
	numbers := b.numbers()
	if d[0] == documentFormat {
		numbers = append(numbers, b.often.numbers()...)
	}
	b.born, b.at = int64(binary.BigEndian.Uint64(d[1:])), int64(binary.BigEndian.Uint64(d[9:]))
	d = d[17:]
	number := func() float32 {
		if len(d) < 4 {
			err = errDocument
			return 0
		}
		f := math.Float32frombits(binary.BigEndian.Uint32(d))
		d = d[4:]
		if !(f >= 0) || math.IsInf(float64(f), 0) {
			err = errDocument
		}
		return f
	}
	for _, f := range numbers {
		*f = number()
	}
	for _, table := range [][]seen{b.networks[:], b.clients[:]} {
		if len(d) == 0 || int(d[0]) > len(table) || len(d) < 1+13*int(d[0]) {
			return baseline{}, errDocument
		}
		used := int(d[0])
		d = d[1:]
		for i := range table[:used] {
			table[i] = seenAt(nonZero(binary.BigEndian.Uint32(d)), 0, binary.BigEndian.Uint32(d[8:]), d[12] == 1)
			d = d[4:]
			table[i].weight = number()
			d = d[5:]
		}
	}
	if err != nil || len(d) > 0 || b.born <= 0 || b.at < b.born {
		return baseline{}, errDocument
	}
	return b, nil
}

// merge makes the baseline the larger of itself and another one, number by
// number, at the later of their times.
func (b *baseline) merge(o *baseline) {
	if b.born == 0 {
		*b = *o
		return
	}
	at := max(b.at, o.at)
	b.decay(at)
	o.decay(at)
	b.born = min(b.born, o.born)
	// The shares of what is spread stay those of one of the two: a mix of both
	// maxima would be that of nobody.
	if o.calls > b.calls {
		b.calls, b.size, b.kinds = o.calls, o.size, o.kinds
	}
	if o.often.halves > b.often.halves {
		b.often = o.often
	}
	b.busiest, b.windows = max(b.busiest, o.busiest), max(b.windows, o.windows)
	for i := range b.peaks {
		b.peaks[i] = max(b.peaks[i], o.peaks[i])
	}
	union(b.networks[:], o.networks[:])
	union(b.clients[:], o.clients[:])
}

// union adds the entries of another table, and keeps those that were met most.
// What is known in one of them is known.
func union(table, other []seen) {
	all := make([]seen, 0, len(table)+len(other))
	for _, s := range slices.Concat(table, other) {
		if s.hash == 0 {
			continue
		}
		i := slices.IndexFunc(all, func(a seen) bool { return a.hash == s.hash })
		if i < 0 {
			all = append(all, s)
			continue
		}
		a := &all[i]
		*a = seenAt(a.hash, max(a.weight, s.weight), min(a.since(), s.since()), a.suspect() && s.suspect())
	}
	slices.SortFunc(all, func(a, b seen) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.hash, b.hash)) })
	clear(table)
	copy(table, all)
}
