module github.com/sluice-kms/sluice/hsm/wycheproof

go 1.27.3

require (
	github.com/c2sp/wycheproof v0.0.0-20260902155932-3fa63dd0344a
	github.com/miekg/pkcs11 v1.1.2
	github.com/sluice-kms/sluice v0.0.0
)

require (
	github.com/decred/dcrd/dcrec/secp256k1/v4 v4.4.1 // indirect
	github.com/emmansun/gmsm v0.44.0 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/sluice-kms/sluice => ../..
