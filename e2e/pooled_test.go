package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"kindred/postgres/pgtest"
)

// stories use all that a session of Postgres is used for: prepared statements,
// notifications, advisory locks, settings, schemas beside the live ones.
var stories = []string{
	"TestTheDemoTellsItsWholeStory", "TestClusteringStory", "TestConsent", "TestUsers", "TestImports", "TestDeliveries",
	"TestACampaignRunsUntilItsBudgetIsSpentAndTellsIt", "TestConcurrentSpendsOfTwoReplicasCountOnce",
	"TestARepeatedRequestTakesEffectOnce", "TestRevocationBitesWithinASecondOnEveryReplica",
	"TestAListReadRightAfterAWriteShowsIt", "TestThePastIsShownAsItWas", "TestAClientRebuildsItsPartOverTheAPI",
	"TestVerifyNamesWhatDiffers", "TestKeysAreRotatedAndRewrapped",
}

func TestPgBouncerInSessionModePassesTheStories(t *testing.T) {
	if os.Getenv(pgtest.EnvPooled) != "" {
		t.Skip("these are the stories")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.timeout=10m", "-test.run=^("+strings.Join(stories, "|")+")$")
	cmd.Env = append(os.Environ(), pgtest.EnvPooled+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v, after:\n%s", err, out)
	}
	for _, story := range stories {
		if !strings.Contains(string(out), "--- PASS: "+story+" ") {
			t.Errorf("%s was not told", story)
		}
	}
}
