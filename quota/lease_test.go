package quota

import "testing"

// A grant that comes when its window is over makes no room in the next one.
func TestGrantOfAWindowThatIsOverFallsToNobody(t *testing.T) {
	l := totalLease{window: 1}
	l.turnTo(2, 1000)
	l.grant(LineGrant{Tokens: 500, Left: 300}, 1, 1)
	if l.room != 0 || l.known {
		t.Errorf("%+v", l)
	}
	l.grant(LineGrant{Tokens: 500, Left: 300}, 2, 1)
	if l.room != 500 || !l.known || l.left != 300 {
		t.Errorf("%+v", l)
	}
}

// What is declared is what was lent: nothing is lost to the grain, in either
// direction, however small the amounts.
func TestLoansAndReturnsAreExactToTheGrain(t *testing.T) {
	var declared, returned, loans int64
	l := rateLease{granted: true}
	b := bucket{}
	for i := range int64(10_000) {
		n := i*7%1999 + 1
		l.loan += n
		loans += n
		b.level += n
		c := LineClaim{PerSecond: 1_000_000}
		returned += l.claim(&b, &c, second, second/4, i%3 == 0)
		declared += c.Extra * Grain
		if l.loan > 0 || l.loan <= -Grain {
			t.Fatalf("after claim %d the loan is %d", i, l.loan)
		}
	}
	if declared-loans != -l.loan || loans != returned+b.level {
		t.Errorf("lent %d, declared %d, rest %d; returned %d, left %d", loans, declared, l.loan, returned, b.level)
	}
}

// A node that holds a good part of what a request needs asks for the rest.
func TestRequestThatWaitsIsAskedForWhateverIsHeld(t *testing.T) {
	const need = 1000 * Grain
	for held := int64(0); held < need; held += Grain {
		total, line := totalLease{window: 1, known: true, room: held, head: need, left: need}, LineClaim{}
		total.claim(&line, second, Grain, 4, false)
		if held+line.Ask*Grain < need {
			t.Fatalf("of a total %d are held and %d asked for", held, line.Ask*Grain)
		}
		r, b, line := rateLease{head: need}, bucket{level: held}, LineClaim{PerSecond: 1000}
		r.claim(&b, &line, second, second/4, false)
		if held+line.Ask*Grain < need {
			t.Fatalf("of a rate %d are held and %d asked for", held, line.Ask*Grain)
		}
	}
}
