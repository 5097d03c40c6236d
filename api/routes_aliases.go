package api

import (
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

func aliasRoutes() []Route {
	const group = "Aliases"
	return []Route{
		change(Route{Name: "set-alias", Group: group, Method: http.MethodPut, Path: "/v1/aliases/{alias}", Op: kms.OpSetAlias,
			Errors: makeErrors, Summary: "Give a key a further name, or move one to it",
			Description: "An alias stands for its key wherever a key is named, so that a client keeps its reference while the key " +
				"behind it changes. Scopes look at the key's own name. Moving an alias takes the right to update both keys."}, setAlias, replaySetAlias),
		change(Route{Name: "delete-alias", Group: group, Method: http.MethodDelete, Path: "/v1/aliases/{alias}", Op: kms.OpDeleteAlias,
			Errors: makeErrors, Summary: "Delete an alias", Description: "The key stays."}, deleteAlias, replayDeleteAlias),
		define(Route{Name: "list-aliases", Group: group, Method: http.MethodGet, Path: "/v1/aliases", Op: kms.OpListAliases,
			Errors: makeErrors, Query: pageParameters, Summary: "List aliases"}, listAliases),
	}
}

func setAlias(c *call, in *SetAliasRequest) (*AliasResponse, error) {
	alias := c.object(0)
	if err := c.carriedOut(c.service.SetAlias(c.context, &c.ticket, in.Key, alias)); err != nil {
		return nil, err
	}
	return &AliasResponse{Alias{alias, c.ticket.Key.ID}, c.charge()}, nil
}

func replaySetAlias(c *call, _ string) (*AliasResponse, error) {
	alias := c.object(0)
	key, err := c.service.ReplayAlias(c.context, &c.ticket, alias)
	if err != nil {
		return nil, err
	}
	return &AliasResponse{Alias{alias, key.ID}, c.charge()}, nil
}

func deleteAlias(c *call, _ *NoBody) (*DeletedAliasResponse, error) {
	alias := c.object(0)
	if err := c.carriedOut(c.service.DeleteAlias(c.context, &c.ticket, alias)); err != nil {
		return nil, err
	}
	return &DeletedAliasResponse{alias, c.charge()}, nil
}

func replayDeleteAlias(c *call, alias string) (*DeletedAliasResponse, error) {
	if _, err := c.service.Replay(c.context, &c.ticket, c.route.Op, ""); err != nil {
		return nil, err
	}
	return &DeletedAliasResponse{alias, c.charge()}, nil
}

func listAliases(c *call, _ *NoBody) (*AliasListResponse, error) {
	aliases, next, err := c.service.ListAliases(c.context, &c.ticket, c.page())
	if err != nil {
		return nil, err
	}
	out := &AliasListResponse{Aliases: make([]Alias, len(aliases)), NextPageToken: next, Charge: c.charge()}
	for i, a := range aliases {
		out.Aliases[i] = Alias{a.Name, a.Key}
	}
	return out, nil
}
