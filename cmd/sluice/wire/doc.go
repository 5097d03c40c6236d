// Package wire puts the parts of Sluice together: it opens tokens, store and
// journal as a configuration says and hands out a running service. It decides
// nothing about requests; the one place that does is kms.Service.
package wire
