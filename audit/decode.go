package audit

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

var errPayload = errors.New("the payload is not an entry in its one encoding")

// parseEntry reads a payload. It accepts exactly what appendEntry makes: a
// payload in any other spelling is not the log's.
func parseEntry(payload []byte) (*kms.Entry, error) {
	e := new(kms.Entry)
	if err := decodeEntry(e, payload, nil); err != nil || !bytes.Equal(appendEntry(make([]byte, 0, len(payload)), e), payload) {
		return nil, errPayload
	}
	return e, nil
}

// decodeEntry is parseEntry, into e, of what this journal wrote itself a moment
// ago. It is lenient about an explicit zero, a number too large for its field and
// an escape too many, which do not survive the way back. Texts that many entries
// have are those of names, where it knows them.
func decodeEntry(e *kms.Entry, payload []byte, names *names) error {
	p := parser{rest: payload, names: names}
	*e = kms.Entry{}
	p.expect(`{"t":`)
	e.Time = p.time()
	e.Phase = kms.Phase(p.name("p"))
	e.RequestID = p.id("id")
	e.ClientRequestID = p.text("cid")
	e.TraceID = p.text("tr")
	e.Tenant = p.id("tn")
	e.Project = p.name("pr")
	e.Credential = p.id("cr")
	e.Subject = p.name("sub")
	e.Component = p.name("cmp")
	e.Op = kms.Op(p.name("op"))
	e.Key = p.id("key")
	e.KeyName = p.name("kn")
	e.Version = uint32(p.int("ver"))
	e.Spec = kms.Spec(p.name("spec"))
	e.Algorithm = kms.Algorithm(p.name("alg"))
	e.Protection = kms.Protection(p.name("prot"))
	e.Resource = p.text("res")
	e.Bytes = int(p.int("len"))
	e.Node = kms.NodeID(p.name("node"))
	e.Cost = kms.Credits(p.int("cost"))
	e.Charged = kms.Credits(p.int("chg"))
	e.Settlement = kms.SettlementState(p.name("set"))
	e.Wait = time.Duration(p.int("wait"))
	e.SlotTime = time.Duration(p.int("slot"))
	e.Total = time.Duration(p.int("tot"))
	e.Outcome = p.name("out")
	e.Reasons = p.reasons()
	e.Address = p.address()
	e.UserAgent = p.name("ua")
	e.Count = uint32(p.int("n"))
	e.DryRun = p.flag("dry")
	e.Replayed = p.flag("rep")
	e.Approval = p.id("apr")
	e.Target = p.id("tgt")
	e.Revision = uint64(p.int("rev"))
	e.PolicyVersion = uint64(p.int("pol"))
	e.Class = kms.Class(p.name("cls"))
	e.Urgency = kms.Urgency(p.name("urg"))
	e.Estimate = time.Duration(p.int("est"))
	e.Grouped = p.flag("grp")
	e.Items = p.items()
	p.expect("}")
	if p.failed || len(p.rest) > 0 {
		return errPayload
	}
	return nil
}

// names are texts that entries have had, so that each is in memory once.
type names struct{ known map[string]string }

// maxNames bounds the texts that are known. Then it begins anew.
const maxNames = 4096

func (n *names) of(text []byte) string {
	if n == nil {
		return string(text)
	}
	if s, ok := n.known[string(text)]; ok {
		return s
	}
	if n.known == nil || len(n.known) >= maxNames {
		n.known = make(map[string]string)
	}
	s := string(text)
	n.known[s] = s
	return s
}

// parser reads a payload from its front. After a failure it reads nothing
// more.
type parser struct {
	rest   []byte
	failed bool
	names  *names // nil: none are known
}

func (p *parser) fail() {
	p.failed, p.rest = true, nil
}

// expect consumes s, or fails.
func (p *parser) expect(s string) {
	if !p.accept(s) {
		p.fail()
	}
}

// accept consumes s if it comes next.
func (p *parser) accept(s string) bool {
	if len(p.rest) < len(s) || string(p.rest[:len(s)]) != s {
		return false
	}
	p.rest = p.rest[len(s):]
	return true
}

// field consumes the name of the field if it comes next.
func (p *parser) field(name string) bool {
	n := len(name)
	if len(p.rest) < n+4 || p.rest[0] != ',' || p.rest[1] != '"' ||
		string(p.rest[2:2+n]) != name || p.rest[2+n] != '"' || p.rest[3+n] != ':' {
		return false
	}
	p.rest = p.rest[n+4:]
	return true
}

func (p *parser) flag(name string) bool {
	if !p.field(name) {
		return false
	}
	p.expect("true")
	return true
}

func (p *parser) int(name string) int64 {
	if !p.field(name) {
		return 0
	}
	return p.number()
}

// number consumes a whole number.
func (p *parser) number() int64 {
	end := 0
	for end < len(p.rest) && (p.rest[end] == '-' || '0' <= p.rest[end] && p.rest[end] <= '9') {
		end++
	}
	n, err := strconv.ParseInt(string(p.rest[:end]), 10, 64)
	if err != nil {
		p.fail()
		return 0
	}
	p.rest = p.rest[end:]
	return n
}

func (p *parser) time() (t time.Time) {
	text, ok := p.plain()
	if !ok || t.UnmarshalText(text) != nil {
		p.fail()
	}
	return t
}

func (p *parser) id(name string) (id uuid.UUID) {
	if !p.field(name) {
		return uuid.UUID{}
	}
	text, ok := p.plain()
	if !ok || id.UnmarshalText(text) != nil {
		p.fail()
	}
	return id
}

func (p *parser) address() netip.Addr {
	if !p.field("ip") {
		return netip.Addr{}
	}
	a, err := netip.ParseAddr(p.quoted())
	if err != nil {
		p.fail()
	}
	return a
}

func (p *parser) reasons() []kms.Reason {
	if !p.field("why") {
		return nil
	}
	p.expect("[")
	var reasons []kms.Reason
	for !p.failed {
		p.expect(`{"c":`)
		reasons = append(reasons, kms.Reason{
			Code:    p.known(),
			Limit:   p.int("l"),
			Need:    p.int("n"),
			Have:    p.int("h"),
			RetryIn: time.Duration(p.int("r")),
			Waited:  time.Duration(p.int("w")),
		})
		p.expect("}")
		if p.accept("]") {
			break
		}
		p.expect(",")
	}
	return reasons
}

func (p *parser) items() []kms.EntryItem {
	if !p.field("items") {
		return nil
	}
	p.expect("[")
	var items []kms.EntryItem
	for !p.failed {
		p.expect(`{"s":`)
		it := kms.EntryItem{Status: kms.FetchStatus(p.quoted()), Secret: p.id("id"), Versions: p.versions()}
		if p.field("end") {
			it.LeaseEnd = p.time()
		}
		items = append(items, it)
		p.expect("}")
		if p.accept("]") {
			break
		}
		p.expect(",")
	}
	return items
}

func (p *parser) versions() (list []uint32) {
	if !p.field("v") {
		return nil
	}
	p.expect("[")
	for !p.failed {
		list = append(list, uint32(p.number()))
		if p.accept("]") {
			break
		}
		p.expect(",")
	}
	return list
}

func (p *parser) text(name string) string {
	if !p.field(name) {
		return ""
	}
	return p.quoted()
}

// name is text that many entries have.
func (p *parser) name(name string) string {
	if !p.field(name) {
		return ""
	}
	return p.known()
}

// known is quoted of a text that many entries have.
func (p *parser) known() string {
	if text, ok := p.plain(); ok {
		return p.names.of(text)
	}
	return p.quoted()
}

// plain consumes a string without escapes, if one comes next. It is valid as long
// as the payload.
func (p *parser) plain() (text []byte, ok bool) {
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return nil, false
	}
	end := 1
	for end < len(p.rest) && plain(p.rest[end]) {
		end++
	}
	if end == len(p.rest) || p.rest[end] != '"' {
		return nil, false
	}
	text, p.rest = p.rest[1:end], p.rest[end+1:]
	return text, true
}

// quoted consumes a JSON string of printable ASCII.
func (p *parser) quoted() string {
	if text, ok := p.plain(); ok {
		return string(text)
	}
	p.expect(`"`)
	var s strings.Builder
	for !p.failed {
		switch {
		case p.accept(`"`):
			return s.String()
		case p.accept(`\u`):
			s.WriteRune(p.escape())
		case p.accept(`\`):
			if len(p.rest) == 0 {
				p.fail()
				break
			}
			s.WriteByte(p.rest[0])
			p.rest = p.rest[1:]
		case len(p.rest) > 0 && plain(p.rest[0]):
			s.WriteByte(p.rest[0])
			p.rest = p.rest[1:]
		default:
			p.fail()
		}
	}
	return ""
}

// escape consumes the digits of a \u escape, and those of the other half of a
// surrogate pair. A half alone becomes U+FFFD, which is not its spelling.
func (p *parser) escape() rune {
	r := p.hex()
	if !utf16.IsSurrogate(r) {
		return r
	}
	if !p.accept(`\u`) {
		return utf8.RuneError
	}
	return utf16.DecodeRune(r, p.hex())
}

func (p *parser) hex() rune {
	const width = 4
	if len(p.rest) < width {
		p.fail()
		return 0
	}
	n, err := strconv.ParseUint(string(p.rest[:width]), 16, 16)
	if err != nil {
		p.fail()
		return 0
	}
	p.rest = p.rest[width:]
	return rune(n)
}
