package keystore

import (
	"context"

	"github.com/sluice-kms/sluice/kms"
)

// SystemSecrets implements kms.SystemSecrets. Damaged versions are reported to
// the log and left out, so that the service starts and works as far as the
// others reach. When all are damaged that is an error: the caller must not
// believe that there is none yet.
func (s *Store) SystemSecrets(ctx context.Context, name string) ([]kms.SystemSecret, error) {
	rows, err := s.driver.SystemSecrets(ctx, SystemSecretsParams{Name: name})
	if err != nil {
		return nil, translate(err)
	}
	var secrets []kms.SystemSecret
	var damage error
	for _, row := range rows {
		secret, err := decodeSystemSecret(name, row)
		if err != nil {
			damage = s.decoded(err)
			continue
		}
		secrets = append(secrets, secret)
	}
	if len(secrets) == 0 {
		return nil, damage
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
