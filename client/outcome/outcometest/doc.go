// Package outcometest gives the answers of LLM providers to tests: one and
// more for each row of the table of package outcome, and a Provider that gives
// them over HTTP.
package outcometest
