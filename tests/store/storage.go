package storage

import "errors"

type VaultConfig struct{ EndpointURL string }

func NewVault(VaultConfig) (Storer, error) { return nil, errors.New("left out of this build") }
