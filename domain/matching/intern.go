package matching

// interner gives equal keys one number from 1 on; 0 stands for no key. The
// number of a key that nobody holds any more is given out again, so its size
// follows what is held at one time.
type interner[K comparable] struct {
	numbers map[K]uint32
	keys    []K
	holders []int
	free    []uint32
}

func newInterner[K comparable]() *interner[K] {
	return &interner[K]{numbers: make(map[K]uint32), keys: make([]K, 1), holders: make([]int, 1)}
}

// hold returns the key's number and counts one more holder.
func (in *interner[K]) hold(key K) uint32 {
	n, ok := in.numbers[key]
	if !ok {
		if last := len(in.free) - 1; last >= 0 {
			n = in.free[last]
			in.free = in.free[:last]
			in.keys[n] = key
		} else {
			n = uint32(len(in.keys))
			in.keys = append(in.keys, key)
			in.holders = append(in.holders, 0)
		}
		in.numbers[key] = n
	}
	in.holders[n]++
	return n
}

// release counts one holder less; releasing 0 does nothing.
func (in *interner[K]) release(n uint32) {
	if n == 0 {
		return
	}
	if in.holders[n]--; in.holders[n] > 0 {
		return
	}
	var none K
	delete(in.numbers, in.keys[n])
	in.keys[n] = none
	in.free = append(in.free, n)
}
