package soft

// slotSize holds the longest key that the slab serves, in bytes: the three
// seeds of an SLH-DSA key of 256 bits.
const slotSize = 3 * 32

// slab is fixed memory outside Go's heap for the keys that are used in their
// raw form: one slot for each loaded key. It does not track which slots are in
// use.
type slab struct {
	memory []byte
	locked bool
}

// newSlab maps a zeroed slab of n slots.
func newSlab(n int) (*slab, error) {
	memory, locked, err := mapLocked(n * slotSize)
	if err != nil {
		return nil, err
	}
	return &slab{memory: memory, locked: locked}, nil
}

// slot returns slot i; writing past its end reaches no other slot.
func (s *slab) slot(i int) []byte {
	return s.memory[i*slotSize : (i+1)*slotSize : (i+1)*slotSize]
}

// close wipes and unmaps the slab, of which nothing may be used any more.
func (s *slab) close() error {
	clear(s.memory)
	memory := s.memory
	s.memory = nil
	return unmap(memory)
}
