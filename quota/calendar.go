package quota

import (
	"encoding/binary"
	"time"
	"uuid"
)

// resetJitter spreads the resets of tenants over the seconds after their
// midnights, so that a day does not begin with all of them at once: clients
// that wait for a reset come back when it happens.
const resetJitter = 300

// calendar tells a tenant's days. A tenant's day begins at its local midnight
// plus up to resetJitter seconds, always the same for one tenant.
type calendar struct {
	zone   *time.Location
	jitter time.Duration
}

func newCalendar(zone *time.Location, tenant uuid.UUID) calendar {
	spread := binary.BigEndian.Uint32(tenant[12:]) // random in every version of UUID
	return calendar{zone, time.Duration(spread%(resetJitter+1)) * time.Second}
}

// day returns the day of an instant as yyyymmdd.
func (c calendar) day(at time.Time) int32 {
	y, m, d := at.Add(-c.jitter).In(c.zone).Date()
	return int32(y*10000 + int(m)*100 + d)
}

// ends returns when a day ends.
func (c calendar) ends(day int32) time.Time {
	end := time.Date(int(day/10000), time.Month(day/100%100), int(day%100)+1, 0, 0, 0, 0, c.zone).Add(c.jitter)
	for c.day(end) <= day { // where the clocks are put forward at midnight
		end = end.Add(time.Hour)
	}
	return end
}

// monthEnds returns when the month of a day ends.
func (c calendar) monthEnds(day int32) time.Time {
	y, m := int(day/10000), time.Month(day/100%100)
	return time.Date(y, m+1, 1, 0, 0, 0, 0, c.zone).Add(c.jitter)
}

// month returns the month of a day as yyyymm.
func month(day int32) int32 { return day / 100 }

// daysBetween returns how many whole days lie between two days, 0 when b
// follows on a or is not after it.
func daysBetween(a, b int32) int {
	date := func(day int32) time.Time {
		return time.Date(int(day/10000), time.Month(day/100%100), int(day%100), 0, 0, 0, 0, time.UTC)
	}
	return max(int(date(b).Sub(date(a))/(24*time.Hour))-1, 0)
}
