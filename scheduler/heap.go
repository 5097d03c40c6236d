package scheduler

// heap is a heap of items by key, then tie. It holds keys beside the items, so
// that a comparison touches no item, and writes an item's position (its index,
// or -1 when it is not in) where the item says. That is what costs, since every
// item lies somewhere else in memory: with four children to a parent an item
// passes half as many others as with two.
type heap[T any] []entry[T]

// children is how many an entry has.
const children = 4

type entry[T any] struct {
	key  int64
	tie  uint64
	item T
	pos  *int32
}

func (e *entry[T]) before(o *entry[T]) bool {
	return e.key < o.key || e.key == o.key && e.tie < o.tie
}

func (h *heap[T]) push(key int64, tie uint64, item T, pos *int32) {
	*h = append(*h, entry[T]{key, tie, item, pos})
	h.up(len(*h) - 1)
}

// fix gives the item at i another key.
func (h heap[T]) fix(i int32, key int64, tie uint64) {
	e := &h[i]
	if e.key == key && e.tie == tie {
		return
	}
	e.key, e.tie = key, tie
	if !h.down(int(i)) {
		h.up(int(i))
	}
}

func (h *heap[T]) remove(i int32) {
	old := *h
	last := len(old) - 1
	*old[i].pos = -1
	moved := old[last]
	old[last] = entry[T]{}
	*h = old[:last]
	if int(i) == last {
		return
	}
	old[i] = moved
	*moved.pos = i
	if !h.down(int(i)) {
		h.up(int(i))
	}
}

func (h heap[T]) up(i int) {
	e := h[i]
	for i > 0 {
		parent := (i - 1) / children
		if !e.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		*h[i].pos = int32(i)
		i = parent
	}
	h[i] = e
	*e.pos = int32(i)
}

// down reports whether the item moved.
func (h heap[T]) down(i int) bool {
	e, from := h[i], i
	for {
		child := children*i + 1
		if child >= len(h) {
			break
		}
		for c, end := child+1, min(child+children, len(h)); c < end; c++ {
			if h[c].before(&h[child]) {
				child = c
			}
		}
		if !h[child].before(&e) {
			break
		}
		h[i] = h[child]
		*h[i].pos = int32(i)
		i = child
	}
	h[i] = e
	*e.pos = int32(i)
	return i != from
}
