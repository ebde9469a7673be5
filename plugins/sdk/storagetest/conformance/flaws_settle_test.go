package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// S16: the counter-proof of the cases of settlements, hosts, windows and
// reconciliation, as TestFlawsAreFound.
func TestSlipsAreFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		slip  slip
		finds []string
	}{
		"waiting is ignored":                {slipWaitIgnored, []string{"dependency/waits-and-is-released"}},
		"dependency is not looked at":       {slipDependencyUnchecked, []string{"dependency/moved-is-stale", "race/dependents-and-their-original", "settle/enqueue-refuses"}},
		"dependents without a change":       {slipBesideUnchanged, []string{"dependency/waits-and-is-released", "dependency/quarantine-takes-what-waits", "transition/action-goes-with-the-change"}},
		"release takes out of quarantine":   {slipReleaseUnquarantines, []string{"dependency/release-leaves-quarantine"}},
		"quarantine takes what was sent":    {slipQuarantineTakesAll, []string{"dependency/quarantine-takes-what-waits"}},
		"what was superseded depends":       {slipSupersededDepend, []string{"dependency/quarantine-takes-what-waits", "dependency/what-a-claim-tells-of-the-original"}},
		"evidence reaches what waits":       {slipEvidenceReachesAll, []string{"dependency/evidence-reaches-what-was-sent"}},
		"dependents are not counted":        {slipDependentsUncounted, []string{"dependency/what-a-claim-tells-of-the-original"}},
		"settled is not expected":           {slipSettledIgnored, []string{"transition/expects-what-people-do"}},
		"attempts are not expected":         {slipAttemptsIgnored, []string{"transition/expects-what-people-do", "settle/supersede"}},
		"quiet time is not expected":        {slipQuietIgnored, []string{"transition/expects-what-people-do"}},
		"horizon is not expected":           {slipWithinIgnored, []string{"transition/expects-what-people-do"}},
		"clock is not expected":             {slipTrustIgnored, []string{"transition/expects-what-people-do"}},
		"method moves":                      {slipMethodMoves, []string{"transition/method-is-set-once"}},
		"customer moves":                    {slipCustomerMoves, []string{"transition/customer-is-filled-in-once"}},
		"acceptance settles what disputed":  {slipSettlesDisputed, []string{"transition/sets-what-people-do"}},
		"claim trusts any clock":            {slipClockTrusted, []string{"claim/unresolved-since-an-untrusted-time"}},
		"claims are not raised":             {slipClaimsNotRaised, []string{"claim/raises-the-incarnation"}},
		"superseded stays":                  {slipSupersedeKeepsOld, []string{"settle/supersede"}},
		"what waits is left behind":         {slipSupersedeForgetsWaiting, []string{"settle/supersede-takes-what-waits", "settle/supersede-conflicts-write-nothing"}},
		"half a supersession":               {slipSupersedePartial, []string{"settle/supersede-conflicts-write-nothing"}},
		"bound keeps the old item":          {slipBoundKeepsOldItem, []string{"settle/supersede-a-window"}},
		"enqueues from old routes":          {slipEnqueueStale, []string{"settle/enqueue-refuses"}},
		"action for nothing enqueued":       {slipEnqueueWithoutAction, []string{"settle/enqueue"}},
		"restore moves the first time":      {slipRestoreMovesFirst, []string{"settle/restored"}},
		"restore takes what is settled":     {slipRestoreTakesSettled, []string{"settle/restored"}},
		"restore keeps the last claim":      {slipRestoreKeepsClaim, []string{"settle/restored"}},
		"restore forgets the quarantine":    {slipRestoreForgetsReason, []string{"settle/restored"}},
		"restore is done too early":         {slipRestoreRaisesEarly, []string{"settle/restored"}},
		"actions of all items":              {slipActionsUnfiltered, []string{"settle/actions-in-pages"}},
		"when it was noticed is lost":       {slipNoticedForgotten, []string{"host/beats-and-leaves"}},
		"what is adopted counts as settled": {slipAdoptSettles, []string{"settle/restored"}},
		"a host that left stays":            {slipLeavingStays, []string{"host/beats-and-leaves"}},
		"samples without a boot":            {slipSamplesWithoutBoot, []string{"host/samples-of-clocks"}},
		"a role is stolen":                  {slipRoleStolen, []string{"host/roles", "race/one-holder-of-a-role"}},
		"the fence stays":                   {slipFenceStays, []string{"host/roles"}},
		"windows overlap":                   {slipWindowIgnoresAcked, []string{"window/is-staged-once", "race/one-window"}},
		"restaging moves the bound":         {slipRestageAdvances, []string{"window/settles"}},
		"settles whatever became of it":     {slipSettlesAnyState, []string{"window/settles"}},
		"a window that exists":              {slipWindowTwice, []string{"window/refuses-what-exists"}},
		"bounds that are not staged":        {slipStagedIgnored, []string{"window/bounds-in-pages"}},
		"cutover moves":                     {slipCutoverMoves, []string{"cutover/is-decided-once"}},
		"counted usage is forgotten":        {slipCountedForgotten, []string{"counter/counted-usage"}},
		"sums have what was superseded":     {slipSumsSuperseded, []string{"reconcile/sums"}},
		"sums have what is disputed":        {slipSumsDisputed, []string{"reconcile/sums"}},
		"sums have what a counter reports":  {slipSumsCounted, []string{"reconcile/sums"}},
		"windows count as positive":         {slipWindowMagnitude, []string{"reconcile/sums-of-windows"}},
		"sums skip a page":                  {slipSumPages, []string{"reconcile/sums-in-pages"}},
		"confirms what is open":             {slipConfirmsWithOpen, []string{"reconcile/confirms-a-sum"}},
		"what is accepted of late":          {slipFreshForgotten, []string{"reconcile/confirms-a-sum"}},
		"a finished run is replaced":        {slipFinishedReplaced, []string{"reconcile/runs"}},
		"digests are ignored":               {slipDigestsIgnored, []string{"outbox/list-for-people"}},
		"events are ignored":                {slipEventsIgnored, []string{"outbox/list-for-people"}},
		"gauges are forgotten":              {slipGaugesForgotten, []string{"outbox/gauges"}},
		"rename forgets the bounds":         {slipRenameForgetsBounds, []string{"route/rename"}},
		"retires what is not idle":          {slipIdleIgnored, []string{"route/retire-when-idle"}},
		"what was replaced is not idle":     {slipIdleAlsoIgnored, []string{"route/retire-when-idle"}},
		"items are found by the old name":   {slipOldNames, []string{"route/rename"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, finds := range tc.finds {
				found(t, tc.slip, finds)
			}
		})
	}
}

// found runs one case over the reference with a mistake, a few times where it
// takes a race to show, and expects that it fails.
func found(t *testing.T, mistake slip, name string) {
	t.Helper()
	options := Options{
		Open: func(context.Context) (storage.Adapter, error) {
			ref := NewReference(nil)
			ref.slips = mistake
			return ref, nil
		},
		Fresh: true, Rounds: 20, Timeout: 2 * time.Second,
	}
	for range 10 {
		report, err := Run(t.Context(), options, func(c Case) bool { return c.Name == name }, nil)
		if err != nil {
			t.Fatal(err)
		}
		if report.Passed+report.Failed != 1 {
			t.Fatalf("%s did not run", name)
		}
		if report.Failed == 1 {
			t.Log(report.Results[0].Line())
			return
		}
	}
	t.Errorf("%s passes", name)
}

// The model finds by itself what shows in the answers of one caller.
func TestModelFindsSlips(t *testing.T) {
	t.Parallel()
	for name, mistake := range map[string]slip{
		"method moves": slipMethodMoves, "attempts are not expected": slipAttemptsIgnored,
		"acceptance settles what is disputed": slipSettlesDisputed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Leases end by the clock of the machine, so a seed is not one path.
			for seed := uint64(3); seed < 8; seed++ {
				report, err := Run(t.Context(), Options{
					Open: func(context.Context) (storage.Adapter, error) {
						ref := NewReference(nil)
						ref.slips = mistake
						return ref, nil
					},
					Seed: seed, Steps: 4000,
				}, func(c Case) bool { return c.Name == "model/lockstep" }, nil)
				if err != nil {
					t.Fatal(err)
				}
				if report.Failed == 1 {
					return
				}
			}
			t.Error("five times 4000 steps found nothing")
		})
	}
}
