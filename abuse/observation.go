package abuse

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"net/netip"
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// Outcome is how a call ended.
type Outcome uint8

// The outcomes.
const (
	Fine    Outcome = iota
	Denied          // the credential may not do or have it, or it does not exist
	Refused         // for now, by quota or load
	Failed          // otherwise
	outcomes
)

// Observation is one call of a credential.
type Observation struct {
	Tenant, Credential uuid.UUID
	At                 time.Time
	Network            uint32 // see Hasher.Network
	Client             Client
	Operation          Operation
	Size               uint8 // binary logarithm of the bytes that it carried, 0 for none
	Outcome            Outcome
	// RetryAfter is the pause that the caller was told, 0: none.
	RetryAfter time.Duration
	// Flagged and Cleared are when the credential was last flagged and cleared as
	// its record has it, and Ends when that flag ends by itself; zero: never.
	Flagged, Cleared, Ends time.Time
}

// Operation is a kind of operation, less than operations.
type Operation uint8

// operations is how many kinds are told apart: what use a stolen credential is
// put to differs by these, and a profile stays small.
const operations = 20

// Kinds of operations. Of keys, each use that gives something away or is signed
// in somebody's name is a kind of its own.
const (
	opEncrypt Operation = iota
	opDecrypt
	opSign
	opVerify
	opMAC
	opDataKey
	opWrap
	opUnwrap
	opAgree
	opReencrypt
	opKeyless
	opFetch
	opReport
	opRead
	opList
	opCreate
	opManage
	opDestroy
	opAudit
	opOther
)

// kinds has the kind of every operation.
var kinds = func() map[kms.Op]Operation {
	m := map[kms.Op]Operation{
		kms.OpEncrypt: opEncrypt, kms.OpEncapsulate: opEncrypt,
		kms.OpDecrypt: opDecrypt, kms.OpDecapsulate: opDecrypt, kms.OpDecryptLegacy: opDecrypt,
		kms.OpSign: opSign, kms.OpCSR: opSign, kms.OpVerify: opVerify, kms.OpVerifyMAC: opVerify,
		kms.OpMAC: opMAC, kms.OpDataKey: opDataKey, kms.OpWrap: opWrap, kms.OpUnwrap: opUnwrap,
		kms.OpSharedSecret: opAgree, kms.OpDerive: opAgree, kms.OpReencrypt: opReencrypt,
		kms.OpRandom: opKeyless, kms.OpDigest: opKeyless, kms.OpBatch: opOther,
		kms.OpFetchSecrets: opFetch, kms.OpWatchSecrets: opFetch,
		kms.OpListKeys: opList, kms.OpListAliases: opList, kms.OpListSecrets: opList, kms.OpListRoutes: opList,
		kms.OpReadAudit: opAudit, kms.OpReadUsage: opAudit, kms.OpReadRequest: opAudit, kms.OpReadCredential: opAudit,
	}
	for _, info := range kms.Ops() {
		if _, ok := m[info.Op]; ok {
			continue
		}
		k := opOther
		switch info.Class {
		case kms.ClassRead:
			k = opRead
		case kms.ClassList:
			k = opList
		case kms.ClassReport:
			k = opReport
		case kms.ClassCreate, kms.ClassImport:
			k = opCreate
		case kms.ClassManage:
			k = opManage
		case kms.ClassDestroy:
			k = opDestroy
		}
		m[info.Op] = k
	}
	return m
}()

// OperationOf returns the kind of an operation.
func OperationOf(op kms.Op) Operation {
	if k, ok := kinds[op]; ok {
		return k
	}
	return opOther
}

// Client is client software: a hash of its name in the upper half, and of its
// name with its version, but for the patch level, in the lower one.
type Client uint32

func (c Client) name() uint32 { return uint32(c) >> 16 }

// maxAgent is how much of a User-Agent counts, in bytes: the product comes
// first (RFC 9110, 10.1.5).
const maxAgent = 64

// ClientOf makes a Client of a User-Agent. Of "sluice-go/1.4.7 linux" the name
// is the text without its digits, and the version "1.4".
func ClientOf(agent string) Client {
	name, version := uint32(fnvOffset), uint32(fnvOffset)
	dots := -1 // in the number under way; -1: none is
	for i := 0; i < len(agent) && i < maxAgent; i++ {
		c := agent[i]
		switch digit := '0' <= c && c <= '9'; {
		case digit:
			dots = max(dots, 0)
			if dots < 2 {
				version = fnv(version, c)
			}
		case c == '.' && dots >= 0:
			dots++
			if dots < 2 {
				version = fnv(version, c)
			}
		default:
			dots = -1
			name, version = fnv(name, c), fnv(version, c)
		}
	}
	return Client(fold16(name)<<16 | fold16(version))
}

// The 32-bit FNV-1a hash.
const (
	fnvOffset = 2166136261
	fnvPrime  = 16777619
)

func fnv(h uint32, c byte) uint32 { return (h ^ uint32(c)) * fnvPrime }

// fold16 makes 16 bits of a hash, as its authors have it for small sizes.
func fold16(h uint32) uint32 { return h>>16 ^ h&0xffff }

// Hasher hashes networks under a seed that no reader of the database knows.
type Hasher struct{ Seed uint64 }

// Bits of an address that name its network: what one site has of IPv4, and what
// a site is assigned of IPv6 (RFC 6177).
const (
	networkBits4 = 24
	networkBits6 = 48
)

// Network returns the hash of an address's network, apart for each credential.
func (h Hasher) Network(credential uuid.UUID, from netip.Addr) uint32 {
	from = from.Unmap()
	raw := from.As16()
	n := binary.BigEndian.Uint64(raw[:8]) >> (64 - networkBits6)
	if from.Is4() {
		n = 1<<63 | uint64(binary.BigEndian.Uint32(raw[12:])>>(32-networkBits4))
	}
	return uint32(mix(mix(n^h.Seed)^binary.BigEndian.Uint64(credential[8:])) >> 32)
}

// mix is the finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Of makes the observation of a request that is over; false when it was of no
// credential, or did not come from anywhere: the service runs the items of jobs
// for their credential.
func (h Hasher) Of(t *kms.Ticket, err error) (o Observation, ok bool) {
	by := t.By
	if by == nil || by.Tenant == nil || by.Credential == (uuid.UUID{}) || !t.Address.IsValid() {
		return o, false
	}
	o = Observation{
		Tenant: by.Tenant.ID, Credential: by.Credential, At: t.Received.Add(t.Elapsed),
		Network: h.Network(by.Credential, t.Address), Client: ClientOf(t.UserAgent),
		Operation: OperationOf(t.Op), Size: uint8(bits.Len(uint(max(t.Bytes, 0)))),
	}
	if g := by.Guard; g != nil {
		o.Flagged, o.Cleared, o.Ends = g.Flagged, g.Cleared, g.Ends
	}
	if t.Denied > 0 {
		o.Outcome = Denied
	}
	if err == nil {
		return o, true
	}
	o.Outcome = Failed
	switch kms.KindOf(err) {
	case kms.KindPermissionDenied, kms.KindNotFound:
		o.Outcome = Denied
	case kms.KindQuotaExceeded, kms.KindQuotaExhausted, kms.KindReducedCapacity, kms.KindWaitExceeded, kms.KindHSMUnavailable:
		o.Outcome = Refused
	}
	if e, ok := errors.AsType[*kms.Error](err); ok {
		o.RetryAfter = e.RetryAfter
	}
	return o, true
}
