package quota

import (
	"maps"
	"slices"
)

// lendNode lends the slots of an HSM node to the API nodes that use it. Where
// they want more than there are, none gets more than it asks for, and those who
// want more get the rest by their weights (max-min fairness); otherwise what is
// left is spread evenly, for what comes before the next claim. What others hold is never lent twice, so a part
// that grew too large shrinks first, and what it gives up is lent with the next
// claims. A node that runs on slots which it was not given counts with them.
func (s *Share) lendNode(now int64, node string, c *LineClaim, ttl int64) LineGrant {
	me := Holder{Until: now + ttl, Seen: now, Demand: c.Ask, Weight: max(c.Weight, 1)}
	var others int64
	wants := map[string]Holder{node: me}
	for name, h := range s.Holders {
		if name != node && h.Until > now {
			others += h.Slots
			wants[name] = h
		}
	}
	tokens := min(fairSlots(c.Limit, node, wants), max(c.Limit-others, 0))
	me.Slots = max(tokens, c.Held)
	s.Holders[node] = me
	return LineGrant{Tokens: tokens, Left: max(c.Limit-others-tokens, 0)}
}

// fairSlots is one holder's part of the slots. What rounding leaves goes to the
// first in the order of their names.
func fairSlots(slots int64, node string, wants map[string]Holder) int64 {
	names := slices.Sorted(maps.Keys(wants))
	spare := slots
	for _, h := range wants {
		spare -= h.Demand
	}
	if spare >= 0 {
		n := int64(len(names))
		part := wants[node].Demand + spare/n
		if int64(slices.Index(names, node)) < spare%n {
			part++
		}
		return part
	}
	// Who asks for one has it before the rest is divided: no process does with
	// none, and one without work has next to no weight.
	if slots >= int64(len(names)) {
		if wants[node].Demand <= 1 {
			return wants[node].Demand
		}
		for _, name := range names {
			if wants[name].Demand <= 1 {
				slots -= wants[name].Demand
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return wants[name].Demand <= 1 })
	}
	for {
		var weights int64
		for _, name := range names {
			weights += wants[name].Weight
		}
		sated := func(name string) bool { return wants[name].Demand*weights <= slots*wants[name].Weight }
		rest := slices.DeleteFunc(slices.Clone(names), sated)
		if len(rest) == len(names) {
			return roundedSlots(slots, node, names, wants, weights)
		}
		if !slices.Contains(rest, node) {
			return wants[node].Demand
		}
		for _, name := range names {
			if sated(name) {
				slots -= wants[name].Demand
			}
		}
		names = rest
	}
}

// roundedSlots shares slots out to holders who all want more than their part.
func roundedSlots(slots int64, node string, names []string, wants map[string]Holder, weights int64) (part int64) {
	left := slots
	for _, name := range names {
		left -= slots * wants[name].Weight / weights
	}
	for i, name := range names {
		if name == node {
			part = slots * wants[name].Weight / weights
			if int64(i) < left {
				part++
			}
		}
	}
	return part
}
