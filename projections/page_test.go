package projections

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"kindred/eventstore"
	"kindred/projections/readmodel"
)

func TestAPageOfLargeItemsEndsWithTheOneThatReachesTheBound(t *testing.T) {
	for _, test := range []struct {
		sizes []int
		want  int
	}{
		{nil, 0},
		{[]int{1, 2, 3}, 3},
		{[]int{5 * readmodel.MaxPage, 1}, 1},
		{[]int{readmodel.MaxPage - 1, 1, 1}, 2},
		{[]int{readmodel.MaxPage / 2, readmodel.MaxPage / 2, 0}, 2},
		{[]int{readmodel.MaxPage / 2, readmodel.MaxPage / 2}, 2},
	} {
		if got := readmodel.Fitting(test.sizes, func(size *int) int { return *size }); got != test.want {
			t.Errorf("%v: %d; want %d", test.sizes, got, test.want)
		}
	}
	if got := readmodel.Fitting([]int{5 * readmodel.MaxPage, 1}, nil); got != 2 {
		t.Errorf("of small items, %d fit", got)
	}
}

// What is kept of users is the same in whatever order they come: the first ones,
// and one that tells of more.
func TestTheOrderInWhichUsersComeIsIrrelevant(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		users := make([]storedUser, random.IntN(60))
		for i := range users {
			users[i].CreatedPosition = eventstore.Position(fmt.Sprintf("%04d", i))
			users[i].traits.Box = make([]byte, random.IntN(readmodel.MaxPage/8))
		}
		end := min(len(users), readmodel.Fitting(users, (*storedUser).size)+1)
		var found foundUsers
		for _, i := range random.Perm(len(users)) {
			found.add(users[i])
		}
		found.sort()
		if !slices.EqualFunc(users[:end], found.users, func(a, b storedUser) bool { return a.CreatedPosition == b.CreatedPosition }) {
			t.Fatalf("%d of %d users are kept; want the first %d", len(found.users), len(users), end)
		}
	}
}
