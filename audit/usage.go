package audit

import (
	"time"

	"github.com/sluice-kms/sluice/kms"
)

// usageSums adds up what entries count for, by every granularity.
type usageSums map[usagePeriod]*kms.UsageSum

type usagePeriod struct {
	granularity kms.Granularity
	start       int64 // seconds since 1970
	kms.UsageKey
}

func (u usageSums) add(e *kms.Entry) {
	key, sum, ok := e.Usage()
	if !ok {
		return
	}
	for _, g := range kms.Granularities() {
		period := usagePeriod{g, g.Start(e.Time).Unix(), key}
		total := u[period]
		if total == nil {
			total = new(kms.UsageSum)
			u[period] = total
		}
		total.Add(sum)
	}
}

// rows returns the sums, in no order.
func (u usageSums) rows() map[kms.Granularity][]kms.UsageRow {
	rows := make(map[kms.Granularity][]kms.UsageRow)
	for period, sum := range u {
		rows[period.granularity] = append(rows[period.granularity],
			kms.UsageRow{Start: time.Unix(period.start, 0).UTC(), UsageKey: period.UsageKey, UsageSum: *sum})
	}
	return rows
}
