// Package vaultclients lets real, unmodified clients of HashiCorp Vault read
// provider secrets of a running service: its Go client, and hvac, the Python
// client, from Debian. It is a module of its own, so that nothing of theirs is
// among the requirements of the service; and it holds only tests.
package vaultclients
