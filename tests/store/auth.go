package auth

import "errors"

var errLeftOut = errors.New("left out of this build")

func NewLDAPService(...any) (IAMService, error)     { return nil, errLeftOut }
func NewS3(...any) (IAMService, error)              { return nil, errLeftOut }
func NewVaultIAMService(...any) (IAMService, error) { return nil, errLeftOut }
func NewIpaIAMService(...any) (IAMService, error)   { return nil, errLeftOut }
