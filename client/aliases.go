package client

import (
	"context"
	"iter"
	"net/http"
)

// Alias is a further name of a key. It can be moved to another key, so that
// programs keep their reference while the key behind it changes.
type Alias struct {
	Name  string `json:"alias"`
	KeyID string `json:"key_id"` // the key that it stands for
}

// AliasOutput is an alias as one call returns it.
type AliasOutput struct {
	Alias
	Charge
}

// SetAlias makes alias a name of a key, moving it from another if it was that
// one's. A name that a key has gives ErrConflict.
func (c *Client) SetAlias(ctx context.Context, alias, key string) (*AliasOutput, error) {
	return invoke[AliasOutput](ctx, c, call{method: http.MethodPut, path: []string{"v1", "aliases", alias}, changes: true,
		in: struct {
			Key string `json:"key"`
		}{key}})
}

// DeletedAlias is an alias that is no more.
type DeletedAlias struct {
	Name string `json:"alias"`
	Charge
}

// DeleteAlias takes an alias away; the key stays.
func (c *Client) DeleteAlias(ctx context.Context, alias string) (*DeletedAlias, error) {
	return invoke[DeletedAlias](ctx, c, call{method: http.MethodDelete, path: []string{"v1", "aliases", alias}, changes: true})
}

type aliasPage struct {
	Aliases []*Alias `json:"aliases"`
	Next    string   `json:"next_page_token"`
}

// ListAliases returns the aliases of the keys that the credential sees, by
// name. Pages are fetched as the loop gets to them; an error ends it.
func (c *Client) ListAliases(ctx context.Context) iter.Seq2[*Alias, error] {
	return list(ctx, c, call{method: http.MethodGet, path: []string{"v1", "aliases"}},
		func(p *aliasPage) ([]*Alias, string) { return p.Aliases, p.Next })
}
