package kms

// usable tells whether the key may serve op now: its usage fits and its state
// allows it.
func usable(k *Key, op Op) error {
	if want := op.Info().Usage; want != "" && k.Usage != want {
		return Errorf(KindInvalidArgument, "the key's usage is %s; %s needs a key with usage %s", k.Usage, op, want)
	}
	switch k.State {
	case KeyEnabled:
		return nil
	case KeyPendingDeletion:
		return Errorf(KindPendingDeletion, "the key is scheduled for deletion")
	}
	return Errorf(KindKeyDisabled, "the key is disabled")
}

// usableVersion returns the version of a number, 0 standing for the primary.
func usableVersion(k *Key, number uint32) (*Version, error) {
	if number == 0 {
		number = k.Primary
	}
	v := k.Version(number)
	if v == nil {
		return nil, Errorf(KindInvalidArgument, "version: the key has no such version")
	}
	if v.State != VersionEnabled {
		return nil, Errorf(KindKeyDisabled, "the key version is disabled")
	}
	return v, nil
}

// chooseAlgorithm returns the algorithm asked for, or the default of the
// key's spec and usage.
func chooseAlgorithm(k *Key, asked Algorithm) (Algorithm, error) {
	algs := k.Spec.Info().Algorithms(k.Usage)
	if asked == "" {
		return algs[0], nil
	}
	for _, a := range algs {
		if a == asked {
			return a, nil
		}
	}
	return "", Errorf(KindInvalidArgument, "algorithm: %s keys with usage %s offer %v", k.Spec, k.Usage, algs)
}
