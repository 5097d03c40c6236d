//go:build race

package scheduler

func init() { underRace = true }
