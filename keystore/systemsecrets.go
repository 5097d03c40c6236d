package keystore

import (
	"context"

	"github.com/sluice-kms/sluice/kms"
)

// SystemSecrets implements kms.SystemSecrets. Unlike other objects the
// versions of a secret fail together: to run with a part of the peppers would
// refuse valid credentials.
func (s *Store) SystemSecrets(ctx context.Context, name string) ([]kms.SystemSecret, error) {
	rows, err := s.driver.SystemSecrets(ctx, SystemSecretsParams{Name: name})
	if err != nil {
		return nil, translate(err)
	}
	secrets := make([]kms.SystemSecret, len(rows))
	for i, row := range rows {
		if secrets[i], err = decodeSystemSecret(name, row); err != nil {
			return nil, s.decoded(err)
		}
	}
	return secrets, nil
}

// PutSystemSecret implements kms.SystemSecrets.
func (s *Store) PutSystemSecret(ctx context.Context, secret kms.SystemSecret) error {
	switch {
	case !kms.ValidName(secret.Name):
		return errArgument("name", "is not a valid name")
	case secret.Version == 0:
		return errArgument("version", reasonRange)
	case len(secret.Blob) == 0:
		return errArgument("blob", reasonMissing)
	}
	return translate(s.driver.InsertSystemSecret(ctx, InsertSystemSecretParams{
		Name: secret.Name, Version: secret.Version, Blob: secret.Blob, Created: timestamp(secret.Created)}))
}
