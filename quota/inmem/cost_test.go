package inmem_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-kms/sluice/kms"
	"github.com/sluice-kms/sluice/quota"
	"github.com/sluice-kms/sluice/quota/inmem"
	"github.com/sluice-kms/sluice/quota/quotatest"
)

// Each of four nodes sees a quarter of a loop, which alone would be below the
// line. What all use shows in what is left of the day.
func TestLoopThatIsSpreadOverNodesIsStoppedOnAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(6 * time.Hour) // a bubble begins at midnight, when days turn
		p := quota.DefaultPolicy()
		gold := p.Tiers[kms.TierGold]
		gold.DayCredits, gold.PoolCredits, gold.BandwidthBytes = 10_000_000, 0, 1<<40
		store := inmem.New(time.Now)
		c := quotatest.NewCluster(t, 4, p, kms.TierGold, func(int) quota.Backing { return store })
		defer c.Close()

		const perSecond, credits = 1600, 100
		even := func(int, time.Duration) float64 { return perSecond / credits / 4 }
		stages := make([]kms.CostStage, len(c.Engines))
		for second := range 6 * 60 {
			c.Drive(t, even, credits, time.Second)
			stopped := 0
			for i, e := range c.Engines {
				for _, event := range e.WatchCosts() {
					if event.Change.To != stages[i]+1 {
						t.Fatalf("node %d goes from %v to %v", i, stages[i], event.Change.To)
					}
					stages[i] = event.Change.To
				}
				if stages[i] == kms.CostStopped {
					stopped++
				}
			}
			if second == 90 {
				for i, e := range c.Engines {
					within(t, "a node's estimate of the use of a minute, in credits",
						float64(e.Account(c.Tenant).Cost.PerMinute)/float64(kms.Credit), perSecond*60*0.9, perSecond*60*1.1)
					if own := perSecond * 60 / 4; int64(own) > int64(e.Account(c.Tenant).Cost.Allowed/kms.Credit)*5 {
						t.Errorf("node %d alone is above the line", i)
					}
				}
			}
			if stopped == len(c.Engines) {
				return
			}
		}
		t.Errorf("after six minutes the nodes are at %v", stages)
	})
}
