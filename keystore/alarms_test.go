package keystore

import (
	"testing"
	"time"
	"uuid"
)

func TestALogIsToldOfARowOnceInAnInterval(t *testing.T) {
	var a alarms
	row, other := RowError{Object: ObjectKey, ID: uuid.NewV7()}, RowError{Object: ObjectKey, ID: uuid.NewV7()}
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, step := range []struct {
		name  string
		row   RowError
		after time.Duration
		want  bool
	}{
		{"the first time", row, 0, true},
		{"again", row, AlarmInterval - 1, false},
		{"another row", other, AlarmInterval - 1, true},
		{"an interval later", row, AlarmInterval, true},
		{"again after that", row, 2*AlarmInterval - 1, false},
	} {
		if got := a.due(step.row, begin.Add(step.after)); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

func TestAlarmsOfManyRowsAreBounded(t *testing.T) {
	var a alarms
	for range 3 * maxAlarms {
		if !a.due(RowError{Object: ObjectKey, ID: uuid.NewV7()}, time.Unix(0, 0)) {
			t.Fatal("the alarm of a new row is kept out of the log")
		}
		if len(a.until) > maxAlarms {
			t.Fatalf("%d rows are remembered", len(a.until))
		}
	}
}
