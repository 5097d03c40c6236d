package api

import (
	"hash/crc32"

	"github.com/sluice-kms/sluice/kms"
)

// CRC32C (Castagnoli; RFC 3720, B.4) finds what was changed on the way by
// accident: by memory, a proxy, or an encoding. It protects from nobody, which
// is TLS's part. Those that come with a request are checked before it is
// carried out; those of results are always given.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// checksum is a CRC32C that a request gives for one of its fields.
type checksum struct {
	field string
	bytes []byte
	given *uint32 // nil: none
}

// verifyChecksums refuses a request of which a field is not what its client
// sent.
func verifyChecksums(list ...checksum) error {
	for i := range list {
		if s := &list[i]; s.given != nil && *s.given != crc32c(s.bytes) {
			return kms.Errorf(kms.KindMalformed, "%s_crc32c: does not match %s, which was changed on its way or encoded wrongly", s.field, s.field)
		}
	}
	return nil
}
