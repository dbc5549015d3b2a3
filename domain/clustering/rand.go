package clustering

// AdjustedRand is the adjusted Rand index (Hubert and Arabie 1985) of two divisions of the
// same users: 1 where they are the same, 0 where they agree as chance does.
func AdjustedRand(a, b []uint16) float64 {
	cells, left, right := map[[2]uint16]int{}, map[uint16]int{}, map[uint16]int{}
	for i := range a {
		cells[[2]uint16{a[i], b[i]}]++
		left[a[i]]++
		right[b[i]]++
	}
	both, ofLeft, ofRight := pairs(cells), pairs(left), pairs(right)
	most := float64((ofLeft + ofRight) / 2)
	chance := float64(ofLeft / float64(max(1, len(a)*(len(a)-1)/2)) * ofRight) // neither is fused
	if most == chance {
		return 1 // both are one cluster, or nobody is with another
	}
	return (both - chance) / (most - chance)
}

// pairs counts those within the groups.
func pairs[T comparable](of map[T]int) (n float64) {
	for _, users := range of {
		n += float64(users * (users - 1) / 2)
	}
	return n
}
