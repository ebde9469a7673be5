package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// S16: the suite's own counter-proof. The reference with one mistake fails the
// case that is there for it. What only real snapshots and locks show is in
// plugins/storage/postgres/broken_test.go.
func TestFlawsAreFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		flaw  flaw
		finds string
	}{
		"invisible is duplicate":        {flawInvisibleIsDuplicate, "race/one-id-two-contents"},
		"conflict is duplicate":         {flawConflictIsDuplicate, "record/conflict-each-records-the-rest"},
		"atomic is partial":             {flawPartialAtomic, "record/conflict-atomic-writes-nothing"},
		"absolute totals write":         {flawAbsoluteTotals, "race/totals-add-up"},
		"totals of duplicates":          {flawTotalsOfDuplicates, "record/duplicate-is-answered"},
		"drops an item":                 {flawDropsAnItem, "outbox/items-of-inserted-events-only"},
		"forgets the building":          {flawForgetsBuilding, "projection/build-keeps-the-totals"},
		"stream by id":                  {flawStreamByID, "stream/by-insertion-order"},
		"stream forgets":                {flawStreamForgetsOne, "stream/misses-nothing-while-others-write"},
		"stale token accepted":          {flawStaleTokenAccepted, "transition/fence"},
		"fenced attempt lost":           {flawFencedAttemptLost, "transition/fence"},
		"claims a live lease":           {flawClaimsLiveLease, "claim/live-leases-are-left-alone"},
		"sums before the lock":          {flawSumsBeforeLock, "race/correctors-stop-at-the-bound"},
		"bound before duplicate":        {flawBoundBeforeDuplicate, "correction/duplicate-before-bound"},
		"a refusal writes":              {flawRefusalWrites, "correction/refusals-write-nothing"},
		"sign of a negative original":   {flawNegativeOriginalSign, "correction/negative-original"},
		"drains twice":                  {flawDrainsTwice, "projection/drain-consumes-the-seed-once"},
		"absolute projection write":     {flawAbsoluteProjection, "projection/batches-add"},
		"no seed":                       {flawSeedForgotten, "projection/build-keeps-the-totals"},
		"flushes twice":                 {flawFlushTwice, "counter/flush-applies-once"},
		"redelivery answers the batch":  {flawRedeliveryOldTotals, "counter/flush-applies-once"},
		"pages by offset":               {flawPagesByOffset, "subscription/keyset-pages"},
		"a sealed bucket moves":         {flawSealedBucketMoves, "bucket/seal-starts-a-generation"},
		"pruning forgets the identity":  {flawPruneForgetsIdentity, "retention/repeats-after-it"},
		"pruning takes open items":      {flawPruneOpenItems, "retention/open-items-stay"},
		"a dry run removes":             {flawDryRunRemoves, "retention/dry-run-tells-and-keeps"},
		"blind for tenants":             {flawTenantBlind, "record/identity-per-tenant"},
		"ignores the deadline":          {flawIgnoresDeadline, "deadline/canceled-calls-are-unavailable"},
		"ignores stale revisions":       {flawStaleIgnored, "record/stale-routes"},
		"results in sorted order":       {flawResultsSorted, "record/results-in-input-order"},
		"merges groups":                 {flawMergesGroups, "aggregate/random-against-the-reference"},
		"totals in a float":             {flawFloat, "decimal/no-binary-fractions"},
		"receipts are not kept":         {flawReceiptNotKept, "receipt/first-delivery-settles-features"},
		"serial keys ignored":           {flawSerialKeyIgnored, "claim/serial-keys"},
		"budget ignored":                {flawBudgetIgnored, "claim/exhausted-attempts"},
		"replacement without a look":    {flawReplacementAlone, "correction/replacement-conflict-writes-nothing"},
		"replacement of another one":    {flawReplacementShared, "correction/replacement-is-its-own"},
		"one replacement for several":   {flawReplacementShared, "race/one-replacement-several-corrections"},
		"sign changes while used":       {flawSignedFrozenNot, "route/features-are-remembered"},
		"unresolved is lost":            {flawUnresolvedLost, "claim/expired-lease-comes-alone-and-unresolved"},
		"activates what is not drained": {flawActivatesUndrained, "projection/activation-needs-the-drain"},
		"prunes corrections alone":      {flawPrunesCorrections, "retention/the-bound-survives"},
		"forgets what remains":          {flawRemainsForgotten, "projection/what-remains-is-found"},
		"folds beyond the watermark":    {flawFoldsBeyond, "projection/fold-is-scan-and-write"},

		"a snapshot counts what is sealed": {flawSnapshotCountsSealed, "snapshot/sealed-is-confirmed-and-not-counted"},
		"a snapshot has no filter":         {flawSnapshotUnfiltered, "snapshot/filter"},
		"confirms what is hot":             {flawConfirmsHot, "snapshot/counts-what-it-confirms"},
		"confirms only what it counts":     {flawConfirmsCountedOnly, "snapshot/sealed-is-confirmed-and-not-counted"},
		"versions stand still":             {flawVersionStands, "race/snapshot-versions-rise-with-what-they-saw"},
		"ignores the floor":                {flawFloorIgnored, "snapshot/bootstrap-and-floor"},
		"a credit counts twice":            {flawCreditTwice, "credit/the-same-one-again"},
		"a reset adds":                     {flawResetAdds, "credit/reset-replaces"},
		"a seal forgets its credits":       {flawSealForgetsCredits, "credit/a-new-period-begins-with-its-credit"},
		"a repeated seal repeats credits":  {flawSealRepeatsCredits, "credit/a-new-period-begins-with-its-credit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := Options{
				Open: func(context.Context) (storage.Adapter, error) {
					ref := NewReference(nil)
					ref.flaws = tc.flaw
					return ref, nil
				},
				Fresh: true, Rounds: 20, Timeout: 20 * time.Second,
			}
			// What is a race may need more than one run to show.
			for range 10 {
				report, err := Run(t.Context(), options, func(c Case) bool { return c.Name == tc.finds }, nil)
				if err != nil {
					t.Fatal(err)
				}
				if report.Passed+report.Failed != 1 {
					t.Fatalf("%s did not run", tc.finds)
				}
				if report.Failed == 1 {
					t.Log(report.Results[0].Line())
					return
				}
			}
			t.Errorf("%s passes", tc.finds)
		})
	}
}

// The model test finds by itself what it can see: mistakes that show in the
// answers of one caller.
func TestModelFindsFlaws(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]flaw{
		"conflict is duplicate": flawConflictIsDuplicate, "atomic is partial": flawPartialAtomic, "totals of duplicates": flawTotalsOfDuplicates,
		"drops an item": flawDropsAnItem, "sign of a negative original": flawNegativeOriginalSign, "flushes twice": flawFlushTwice,
		"a sealed bucket moves": flawSealedBucketMoves, "merges groups": flawMergesGroups, "stale token accepted": flawStaleTokenAccepted,
		"receipts are not kept": flawReceiptNotKept, "replacement without a look": flawReplacementAlone, "budget ignored": flawBudgetIgnored,
		"bound before duplicate": flawBoundBeforeDuplicate, "stream forgets": flawStreamForgetsOne,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := Run(t.Context(), Options{
				Open: func(context.Context) (storage.Adapter, error) {
					ref := NewReference(nil)
					ref.flaws = f
					return ref, nil
				},
				Seed: 3, Steps: 4000,
			}, func(c Case) bool { return c.Name == "model/lockstep" }, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Failed != 1 {
				t.Error("4000 steps found nothing")
				return
			}
			t.Log(report.Results[0].Line())
		})
	}
}
