package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/url"
)

// list returns the items of all pages of a list, the first of which k asks
// for. P is an answer with one page; content returns its items and the token
// of the next. Every loop over the result starts anew.
func list[T, P any](ctx context.Context, c *Client, k call, content func(*P) ([]*T, string)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		k := k
		for token := ""; ; {
			p, err := invoke[P](ctx, c, k)
			if err != nil {
				yield(nil, err)
				return
			}
			items, next := content(p)
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == token {
				yield(nil, fmt.Errorf("%w: a page of the list names itself as the next", ErrBadAnswer))
				return
			}
			token = next
			query := maps.Clone(k.query)
			if query == nil {
				query = url.Values{}
			}
			query.Set("page_token", token)
			k.query = query
		}
	}
}
