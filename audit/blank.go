package audit

// blankBytes is how far zeros are written ahead of the records at a time. Who
// syncs a record into a file that is not longer afterwards, in blocks that hold
// data already, syncs the record alone; otherwise the file system has metadata
// to commit too, which on ext4 doubles both the time of the sync (215 µs to
// 125 µs) and what it takes of the processor (110 µs to 65 µs). Half a mebibyte
// is a thousand entries, and less than maxTorn: a release from before there
// were zeros takes them for a write that a crash left.
const blankBytes = 512 << 10

var zeros [blankBytes]byte

// blank makes sure that the segment's file has the bytes that the next size
// bytes of records replace. Only space that is held is blanked, so that zeros
// need none of their own; where the file system holds none there are none.
func (w *writer) blank(s *segment, size int64) error {
	need := s.end + size
	if w.unheld || need <= s.blanked {
		return nil
	}
	from := max(need, s.blanked)
	to := min(from+blankBytes, s.allocated, max(w.config.SegmentBytes, from))
	if to == from {
		return nil
	}
	if _, err := s.file.WriteAt(zeros[:to-from], from); err != nil {
		return err
	}
	s.blanked = to
	return nil
}

// unblank ends the segment's file behind its last record, durably: only the
// last segment of a journal may have zeros. It syncs in any case, since a cut
// after a failed write was not synced.
func (s *segment) unblank() error {
	if err := s.cut(); err != nil {
		return err
	}
	return s.file.Sync()
}

// cut ends the segment's file behind its last record, which gives back the
// space held behind it.
func (s *segment) cut() error {
	if err := s.file.Truncate(s.end); err != nil {
		return err
	}
	s.allocated, s.blanked = s.end, s.end
	return nil
}
