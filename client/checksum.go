package client

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC32C returns the CRC32C (Castagnoli; RFC 3720, B.4) of b for the fields of
// inputs with that name. The service checks a sum before it does anything and
// refuses with ErrMalformed when the bytes that it got are others; the output
// says which ones it checked. Outputs carry the sums of their own bytes, to be
// compared with CRC32C of what arrived: such sums find what memory, a proxy or
// an encoding has damaged, and protect from nobody.
func CRC32C(b []byte) *uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return &sum
}
