package audit

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// usageSums adds up what entries count for: by the shortest period, since most
// entries of a batch are of one, and of what the one before them was.
type usageSums struct {
	sums map[usagePeriod]*kms.UsageSum
	last usagePeriod
	sum  *kms.UsageSum // of last
}

type usagePeriod struct {
	start int64 // seconds since 1970
	kms.UsageKey
}

func (u *usageSums) add(e *kms.Entry) {
	key, sum, ok := e.Usage()
	if !ok {
		return
	}
	period := usagePeriod{kms.ByMinute.Start(e.Time).Unix(), key}
	if u.sum == nil || period != u.last {
		u.last, u.sum = period, sumOf(&u.sums, period)
	}
	u.sum.Add(sum)
}

func sumOf(sums *map[usagePeriod]*kms.UsageSum, period usagePeriod) *kms.UsageSum {
	if *sums == nil {
		*sums = make(map[usagePeriod]*kms.UsageSum)
	}
	sum := (*sums)[period]
	if sum == nil {
		sum = new(kms.UsageSum)
		(*sums)[period] = sum
	}
	return sum
}

// rows returns the sums of every granularity, in no order.
func (u *usageSums) rows() map[kms.Granularity][]kms.UsageRow {
	rows := make(map[kms.Granularity][]kms.UsageRow)
	for _, g := range kms.Granularities() {
		var sums map[usagePeriod]*kms.UsageSum
		for period, sum := range u.sums {
			period.start = g.Start(time.Unix(period.start, 0).UTC()).Unix()
			sumOf(&sums, period).Add(*sum)
		}
		for period, sum := range sums {
			rows[g] = append(rows[g], kms.UsageRow{Start: time.Unix(period.start, 0).UTC(), UsageKey: period.UsageKey, UsageSum: *sum})
		}
	}
	return rows
}
