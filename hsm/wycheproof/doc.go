// Package wycheproof runs the test vectors of Project Wycheproof
// (github.com/c2sp/wycheproof, Apache-2.0) through the drivers of package hsm,
// and signature verification through the service too. It holds tests only, and
// is a module of its own, so that the vectors, 110 MB of them, are nobody's
// dependency:
//
//	cd hsm/wycheproof && go test ./...
//
// Keys of the vectors are imported (hsm.Importer), so a PKCS#11 token computes
// with them as with its own. The providers are the in-process engine, SoftHSM
// and NSS; SLUICE_REQUIRE=softhsm,nss turns one that is not installed from a
// skip into a failure.
//
// What a provider must make of a vector follows from the vector's result:
// valid ones give what they state, invalid ones fail, by the one error of
// their operation, and acceptable ones may do either but give nothing else.
// Vectors of what the product does not offer (nonces of other lengths, keys
// of other sizes, labels, contexts) are counted apart, and every test states
// how many it must have run, so that none falls silent.
package wycheproof
