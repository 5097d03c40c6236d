package quota

import "github.com/sluice-kms/sluice/kms"

// MaxPrice bounds a price: more credits than the largest tier may use in a day
// (600 million), so every limit refuses it, and few enough that thousands of
// such prices add up without overflow.
const MaxPrice = 1_000_000_000 * kms.Credit

// Costs is the price list of a policy document, in whole credits. A new price
// needs a new version, because entries of the journal name it.
type Costs struct {
	Version string `json:"version"`
	// Default is the price of what has no row.
	Default int64 `json:"default" range:"0:1000000"`
	// BlockBytes is what the base price covers and each further credit buys.
	BlockBytes int64 `json:"block_bytes" range:"1:1073741824"`
	// RefusedMicrocredits is the price of a request that is refused before it
	// is admitted.
	RefusedMicrocredits int64 `json:"refused_microcredits" range:"0:1000000"`
	// Operations cost the same whatever the key.
	Operations map[kms.Op]int64 `json:"operations" range:"0:1000000"`
	// Specs are the prices of operations on a key, by its spec.
	Specs map[kms.Spec]SpecCosts `json:"specs"`
}

// SpecCosts is a spec's row: see columnOf for which operations a column is.
type SpecCosts struct {
	Private  int64 `json:"private" range:"0:1000000"`
	Public   int64 `json:"public" range:"0:1000000"`
	Generate int64 `json:"generate" range:"0:1000000"`
	// ColdLoad is added when the key has to be loaded into a token first.
	ColdLoad int64 `json:"cold_load" range:"0:1000000"`
	// Apart are operations that do not cost what their column says.
	Apart map[kms.Op]int64 `json:"apart,omitzero" range:"0:1000000"`
}

// CostTable is a price list ready for use. It is immutable and safe for
// concurrent use.
type CostTable struct {
	// Version names the table in answers and entries.
	Version string

	operations map[kms.Op]kms.Credits   // the same whatever the key
	specs      map[kms.Spec]*specPrices // by the key's spec
	fallback   kms.Credits              // of what has no row
	refused    kms.Credits
	blockBytes int64
}

// NewCostTable makes the table of a valid price list.
func NewCostTable(c *Costs) *CostTable {
	t := &CostTable{
		Version:    c.Version,
		operations: inMicrocredits(c.Operations),
		specs:      make(map[kms.Spec]*specPrices, len(c.Specs)),
		fallback:   kms.Credits(c.Default) * kms.Credit,
		refused:    kms.Credits(c.RefusedMicrocredits),
		blockBytes: c.BlockBytes,
	}
	for spec, row := range c.Specs {
		t.specs[spec] = &specPrices{
			private:  kms.Credits(row.Private) * kms.Credit,
			public:   kms.Credits(row.Public) * kms.Credit,
			generate: kms.Credits(row.Generate) * kms.Credit,
			coldLoad: kms.Credits(row.ColdLoad) * kms.Credit,
			apart:    inMicrocredits(row.Apart),
		}
	}
	return t
}

func inMicrocredits(prices map[kms.Op]int64) map[kms.Op]kms.Credits {
	m := make(map[kms.Op]kms.Credits, len(prices))
	for op, credits := range prices {
		m[op] = kms.Credits(credits) * kms.Credit
	}
	return m
}

// column is a column of the table of specs.
type column uint8

const (
	noColumn column = iota
	private         // sign and what else needs the private or secret key
	public          // verify and what else the public half can do
	generate
)

// columnOf tells in which column an operation's base price is found. The
// symmetric specs have one price in both columns of use.
func columnOf(op kms.Op) column {
	switch op {
	case kms.OpSign, kms.OpCSR, kms.OpDecrypt, kms.OpDecryptLegacy, kms.OpMAC, kms.OpUnwrap, kms.OpSharedSecret, kms.OpDerive, kms.OpDecapsulate:
		return private
	case kms.OpVerify, kms.OpEncrypt, kms.OpReencrypt, kms.OpVerifyMAC, kms.OpDataKey, kms.OpWrap, kms.OpEncapsulate:
		return public
	case kms.OpCreateKey, kms.OpRotateKey, kms.OpKeeperRotate:
		return generate
	}
	return noColumn
}

// specPrices is a row of the table of specs.
type specPrices struct {
	private, public, generate kms.Credits
	coldLoad                  kms.Credits
	apart                     map[kms.Op]kms.Credits // named apart from their column
}

func (p *specPrices) base(op kms.Op) (kms.Credits, bool) {
	if price, ok := p.apart[op]; ok {
		return price, true
	}
	switch columnOf(op) {
	case private:
		return p.private, true
	case public:
		return p.public, true
	case generate:
		return p.generate, true
	}
	return 0, false
}

// Price returns what op on a key of spec ("" for operations on no key) costs
// with the given bytes of input, in micro-credits: at least 0 and at most
// MaxPrice, whatever the arguments. A negative count of bytes counts as none.
// It does not allocate.
func (t *CostTable) Price(op kms.Op, spec kms.Spec, bytes int) kms.Credits {
	return min(t.base(op, spec)+t.surcharge(bytes), MaxPrice)
}

func (t *CostTable) base(op kms.Op, spec kms.Spec) kms.Credits {
	if price, ok := t.operations[op]; ok {
		return price
	}
	if row := t.specs[spec]; row != nil {
		if price, ok := row.base(op); ok {
			return price
		}
	}
	return t.fallback
}

func (t *CostTable) surcharge(bytes int) kms.Credits {
	if int64(bytes) <= t.blockBytes {
		return 0
	}
	blocks := int64(bytes-1) / t.blockBytes // ceil(bytes/blockBytes) - 1
	return kms.Credits(min(blocks, int64(MaxPrice/kms.Credit))) * kms.Credit
}

// ColdLoad returns what is added when a key of spec had to be loaded into a
// token first; 0 for an unknown spec and for "".
func (t *CostTable) ColdLoad(spec kms.Spec) kms.Credits {
	if row := t.specs[spec]; row != nil {
		return row.coldLoad
	}
	return 0
}

// Refused returns the price of a request that is refused before it is
// admitted: for its credential, its scopes, or an object that is not there.
func (t *CostTable) Refused() kms.Credits { return t.refused }
