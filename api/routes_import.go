package api

import (
	"encoding/pem"
	"net/http"

	"github.com/sluice-kms/sluice/kms"
)

func importRoutes() []Route {
	const group = "Keys"
	return []Route{
		define(Route{Name: "import-parameters", Group: group, Method: http.MethodPost, Path: "/v1/import-parameters", Op: kms.OpImportParams,
			Errors:  []kms.Kind{kms.KindInvalidArgument},
			Summary: "Get what a key is wrapped for to be imported",
			Description: "A public key that is made for it, and a token that holds its private half, sealed for the tenant: " +
				"the service keeps nothing. Both work for 24 hours, and for any number of keys."}, importParameters),
		change(Route{Name: "import-key", Group: group, Method: http.MethodPost, Path: "/v1/import", Op: kms.OpImportKey,
			Success: http.StatusCreated, Errors: makeErrors,
			Summary: "Make a key of material from outside",
			Description: "The material passes through the memory of the service on its way, and the key's origin says so for good. " +
				"Whatever is wrong with the token or the wrapped key, the answer is the same; only an expired token is told."}, importKey, replayKey),
	}
}

func importParameters(c *call, in *ImportParametersRequest) (*ImportParametersResponse, error) {
	out, err := c.service.ImportParameters(c.context, &c.ticket, in.Wrapping)
	if err != nil {
		return nil, err
	}
	return &ImportParametersResponse{
		Wrapping:  out.Wrapping,
		PublicKey: string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: out.PublicKey})),
		Token:     out.Token, ExpiresAt: out.Expires.UTC(), Charge: c.charge(),
	}, nil
}

func importKey(c *call, in *ImportKeyRequest) (*KeyResponse, error) {
	made, err := createInput(&in.CreateKeyRequest)
	if err != nil {
		return nil, err
	}
	key, err := c.service.ImportKey(c.context, &c.ticket, kms.ImportKeyInput{
		CreateKeyInput: made, Wrapping: in.Wrapping, Token: in.Token, Wrapped: in.WrappedKey,
	})
	if err := c.carriedOut(err); err != nil {
		return nil, err
	}
	c.createdKey(key.ID)
	return c.key(key), nil
}
