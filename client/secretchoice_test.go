package client_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"

	"github.com/sluice-kms/sluice/client"
)

// chosen is the version of each of n routing keys, with the weights given.
func chosen(t *testing.T, n int, versions ...fakeVersion) (of []string, share map[string]float64) {
	t.Helper()
	share = map[string]float64{}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put("a", "changed", "ok", versions...)
		s := newSecrets(t, f, client.SecretsOptions{})
		h := s.Handle("a")
		preload(t, s, "a")
		for i := range n {
			v, err := h.Get(fmt.Sprintf("request-%d", i))
			if err != nil {
				t.Fatal(err)
			}
			of = append(of, v.Reveal())
			share[v.Reveal()] += 1 / float64(n)
		}
	})
	return of, share
}

func weighted(weights ...int) []fakeVersion {
	var versions []fakeVersion
	for i, w := range weights {
		versions = append(versions, fakeVersion{uint32(i + 1), w, fmt.Sprint(i + 1)})
	}
	return versions
}

const draws = 20_000

func TestEachVersionGetsItsShareOfTheRequests(t *testing.T) {
	for _, weights := range [][]int{{90, 10}, {70, 30}, {1, 99}, {50, 30, 20}, {100}, {0, 100}, {0, 0}, {5, 5, 5, 5}} {
		total := 0
		for _, w := range weights {
			total += w
		}
		_, share := chosen(t, draws, weighted(weights...)...)
		for i, w := range weights {
			p := 1 / float64(len(weights))
			if total > 0 {
				p = float64(w) / float64(total)
			}
			// Four standard deviations of a binomial share: once in 16,000.
			if got, bound := share[fmt.Sprint(i+1)], 4*math.Sqrt(p*(1-p)/draws)+1e-9; math.Abs(got-p) > bound {
				t.Errorf("%v: version %d has %.4f of the requests, want %.4f ± %.4f", weights, i+1, got, p, bound)
			}
		}
	}
}

func TestARequestStaysWithItsVersionInEveryProcess(t *testing.T) {
	first, _ := chosen(t, 1000, weighted(60, 40)...)
	second, _ := chosen(t, 1000, weighted(60, 40)...)
	reversed, _ := chosen(t, 1000, fakeVersion{2, 40, "2"}, fakeVersion{1, 60, "1"})
	for i := range first {
		if first[i] != second[i] || first[i] != reversed[i] {
			t.Fatalf("request %d: version %s, %s and %s", i, first[i], second[i], reversed[i])
		}
	}
}

// Of two versions, which a rollout has, only the difference moves; of more, at
// most twice as many requests do.
func TestWhenWeightsChangeOnlyTheDifferenceMoves(t *testing.T) {
	for _, tc := range []struct {
		before, after []int
		moves         float64
	}{
		{[]int{90, 10}, []int{70, 30}, 0.2},
		{[]int{70, 30}, []int{0, 100}, 0.7},
		{[]int{50, 30, 20}, []int{50, 40, 10}, 0.1},
		{[]int{40, 40, 20}, []int{50, 50, 0}, 0.2},
	} {
		before, _ := chosen(t, draws, weighted(tc.before...)...)
		after, _ := chosen(t, draws, weighted(tc.after...)...)
		moved := 0.0
		for i := range before {
			if before[i] != after[i] {
				moved += 1.0 / draws
			}
		}
		most := tc.moves
		if len(tc.before) > 2 {
			most *= 2
		}
		if moved < tc.moves-0.015 || moved > most+0.015 {
			t.Errorf("%v to %v: %.3f of the requests moved, want %.3f to %.3f", tc.before, tc.after, moved, tc.moves, most)
		}
	}
}
