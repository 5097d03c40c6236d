// Package hsm runs operations on a pool of nodes and keeps the material of
// tenants' keys under HSM custody.
//
// A node is something with slots: one HSM token, or the in-process engine for
// the algorithms that the tokens lack. Each slot is a worker, a goroutine
// that owns a session and runs one call at a time. A domain is a set of
// tokens that share two root keys, so each of them can use every key of the
// domain.
//
// # Material at rest
//
// A key version is generated inside a token, wrapped there under the domain's
// key root (RFC 5649), destroyed, and the wrapped form is sealed by AES-GCM
// under the tenant's sealing key, which is itself of use only inside the
// domain's tokens. The additional data of that seal binds tenant, key,
// version, spec, usage and protection, so that a blob moved to another row is
// refused before it reaches the unwrap. Keys of algorithms that the tokens
// lack are made by the in-process engine and sealed in the same way; they are
// SEALED keys, and the product says so wherever it shows them.
//
// # Generations
//
// A domain's roots can be replaced. Until those of an earlier generation are
// retired, tokens hold both: material is made under the newest and opens under
// the one that its blob names, or the tenant's row for a sealing key. What a
// blob holds of a SEALED key, or of the service's secrets, needs no root but
// that of the sealing key. A backup token takes material from one generation
// to the next (see Rewrapper); a member never could.
//
// # Loaded keys
//
// To use a version a node opens its blob, unwraps it and keeps the handle in
// a cache: bounded, loaded once however many ask (single flight), counted by
// users so that nothing is destroyed under a running call, and tagged with the
// node's epoch, since handles are numbered anew after a token was initialised
// again and would then name another tenant's key.
//
// # Drivers
//
// A driver implements Token and Session. It reports failures by class (see
// Class), and the node acts on the class alone.
package hsm
