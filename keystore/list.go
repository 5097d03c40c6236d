package keystore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// position is a place in a list: a name and, where names are not unique, the
// id that comes with it, as they are stored.
type position struct {
	name string
	id   string
}

func (p position) compare(q position) int {
	return cmp.Or(strings.Compare(p.name, q.name), strings.Compare(p.id, q.id))
}

// scope says what a list is of. A page token is good for its scope only.
type scope struct {
	kind    byte
	tenant  uuid.UUID
	project string
}

// listing reads pages of one list: rows from the driver, objects for the
// caller.
type listing[Row, T any] struct {
	scope       scope
	rows        func(ctx context.Context, after position, limit int) ([]Row, error)
	rowPosition func(Row) position
	decode      func(Row) (T, error)
	damaged     func(error)
}

// page returns one page and the token of the next. Damaged rows are left out
// and made up for by those that follow, so that a page is short only at the
// end of the list, and a token always names a good row.
func (l *listing[Row, T]) page(ctx context.Context, p kms.Page) ([]T, string, error) {
	if p.Size < 1 || p.Size > kms.MaxPageSize {
		return nil, "", kms.Errorf(kms.KindInvalidArgument, "page size: must be 1 to %d", kms.MaxPageSize)
	}
	var after, lastGood position
	if p.Token != "" {
		var ok bool
		if after, ok = l.scope.parseToken(p.Token); !ok {
			return nil, "", kms.Errorf(kms.KindInvalidArgument, "page token: not one that this list returned")
		}
	}
	var items []T
	for {
		// One more than needed tells whether there is a next page.
		limit, start := p.Size-len(items)+1, after
		rows, err := l.rows(ctx, after, limit)
		if err != nil {
			return nil, "", translate(err)
		}
		for _, row := range rows {
			after = l.rowPosition(row)
			item, err := l.decode(row)
			if err != nil {
				l.damaged(err)
				continue
			}
			if len(items) == p.Size {
				return items, l.scope.token(lastGood), nil
			}
			items, lastGood = append(items, item), after
		}
		if len(rows) < limit {
			return items, "", nil
		}
		if after.compare(start) <= 0 {
			return nil, "", kms.Wrap(kms.KindInternal, errOrder, "the list cannot be read")
		}
	}
}

// errOrder ends a list that would otherwise go round in circles.
var errOrder = errors.New("keystore: the driver returned rows before the position asked for")

const (
	// tokenSumSize is the length in bytes of a token's check sum: it has to
	// notice mistakes, not to resist anybody, see token.
	tokenSumSize = 8
	// maxTokenSize bounds a token before it is looked at: sum, length of the
	// id, id and name, in base64.
	maxTokenSize = (tokenSumSize + 1 + 16 + kms.MaxNameLength + 2) / 3 * 4
)

var tokenEncoding = base64.RawURLEncoding.Strict()

// token makes a page token: a check sum over scope and position, then the
// position. The sum makes a token useless for any other list and refuses a
// mangled one. It is not keyed, because there is nothing to protect: a
// position that somebody makes up only says where in his own list to begin.
func (s scope) token(p position) string {
	body := string([]byte{byte(len(p.id))}) + p.id + p.name
	sum := s.sum(body)
	return tokenEncoding.EncodeToString(append(sum[:tokenSumSize], body...))
}

func (s scope) parseToken(token string) (position, bool) {
	if len(token) > maxTokenSize {
		return position{}, false
	}
	b, err := tokenEncoding.DecodeString(token)
	if err != nil || len(b) <= tokenSumSize || tokenEncoding.EncodeToString(b) != token {
		return position{}, false // the last: decoding passes over line breaks
	}
	body := string(b[tokenSumSize:])
	sum := s.sum(body)
	id := 1 + int(body[0])
	if !bytes.Equal(sum[:tokenSumSize], b[:tokenSumSize]) || id > len(body) || !storableText(body[id:]) {
		return position{}, false
	}
	return position{id: body[1:id], name: body[id:]}, true
}

func (s scope) sum(body string) [sha256.Size]byte {
	b := []byte("sluice page token 1\x00")
	b = append(b, s.kind)
	b = append(b, s.tenant[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.project)))
	b = append(b, s.project...)
	return sha256.Sum256(append(b, body...))
}
