package conformance

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func itemCases() []Case {
	return []Case{
		{"items/each-once", "every item of a batch of 1 to max_batch items is sent once and answered once, in any order", itemsEachOnce},
		{"items/none", "an empty batch is an answer without outcomes, and sends nothing", itemsNone},
		{"items/identifier", "an item's identifier stands in its request, unchanged", itemsIdentifier},
		{"items/no-chance", "what is sent depends on neither time, randomness nor the instance", itemsNoChance},
		{"items/alone", "an item's request does not depend on what is delivered beside it or before it", itemsAlone},
		{"items/values", "a value that the manifest allows is sent exactly, to its last digit", itemsValues},
		{"items/beyond", "a value that the manifest does not allow is sent exactly or not at all", itemsBeyond},
		{"items/unicode", "customers of any script, with quotes and separators, arrive as they are", itemsUnicode},
		{"items/correction", "a correction is told by its method: a cancel names the original's identifier, a negative its own; an unknown one is not sent", itemsCorrection},
	}
}

func itemsEachOnce(t *trial) {
	most := t.suite.manifest.MaxBatch
	for _, n := range slices.Compact([]int{1, min(2, most), min(7, most), most}) {
		items := t.items(n)
		t.random.Shuffle(n, func(i, j int) { items[i], items[j] = items[j], items[i] })
		d := t.session().deliver(t.says(Accept), items...)
		d.want(t, "a success", exporter.Accepted)
		for i := range items {
			reports := 0
			for _, r := range d.requests {
				for _, id := range r.Items {
					if id == items[i].ID {
						reports++
					}
				}
			}
			if reports != 1 {
				t.failf("an item of a batch of %d is reported by %d requests", n, reports)
			}
		}
	}
}

func itemsNone(t *trial) {
	if d := t.session().deliver(t.says(Accept)); len(d.requests) > 0 {
		t.failf("%d requests for no item", len(d.requests))
	}
}

func itemsIdentifier(t *trial) {
	m := t.suite.manifest
	if m.Records != nil {
		t.skipf("this provider has no identifiers")
	}
	items := t.items(min(5, m.MaxBatch))
	if most := min(m.IdentifierMaxLength, 512); most > 0 {
		items[0].Identifier = word(t.random, most)
	}
	if len(items) > 1 {
		items[1].Identifier = "Fencepost-" + strings.Repeat("9", min(8, max(m.IdentifierMaxLength-10, 1)))
	}
	d := t.session().deliver(t.says(Accept), items...)
	for i := range items {
		switch r := d.requestOf(items[i].ID); {
		case r == nil:
			t.failf("an item with an identifier of %d characters is not sent", len(items[i].Identifier))
		case !carries(r, items[i].Identifier):
			t.failf("a request does not carry its item's identifier")
		}
	}
	d.want(t, "a success", exporter.Accepted)
}

func itemsNoChance(t *trial) {
	items := t.items(min(3, t.suite.manifest.MaxBatch))
	one, other := t.open(3, true), t.open(200, true)
	a := one.deliver(t.says(Accept), items...)
	b := other.deliver(t.says(Accept), items...)
	again := one.deliver(t.says(Accept), items...)
	late := one.deliverBytes(t.says(Accept), items, wirev1.EncodeDelivery(exporter.Delivery{
		Items: items, Deadline: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
	}))
	if !sameBytes(a.raw, b.raw) {
		t.failf("two instances with other clocks and randomness send other bytes for the same items")
	}
	if !sameBytes(a.raw, again.raw) {
		t.failf("one instance sends other bytes for the same items the second time")
	}
	if !sameBytes(a.raw, late.raw) {
		t.failf("with another deadline other bytes are sent")
	}
}

func itemsAlone(t *trial) {
	items := t.items(min(4, t.suite.manifest.MaxBatch))
	together := t.session().deliver(t.says(Accept), items...)
	for i := range items {
		r := together.requestOf(items[i].ID)
		if r == nil {
			t.fatalf("an item is not sent")
		}
		if len(r.Items) > 1 {
			t.skipf("this exporter puts several items into a request")
		}
	}
	for _, it := range slices.Backward(items) {
		alone := t.session().deliver(t.says(Accept), it)
		a := wirev1.EncodeRequests([]capability.Request{*together.requestOf(it.ID)})
		if r := alone.requestOf(it.ID); r == nil || !bytes.Equal(a, wirev1.EncodeRequests([]capability.Request{*r})) {
			t.failf("an item alone is another request than in a batch")
		}
	}
}

func itemsValues(t *trial) {
	for _, v := range t.values() {
		it := t.item(0)
		it.Value = v
		d := t.session().deliver(t.says(Accept), it)
		switch r := d.requestOf(it.ID); {
		case r == nil:
			t.failf("value %s is not sent", v)
		case !carries(r, v):
			t.failf("value %s is not in the request as it is", v)
		}
	}
}

func itemsBeyond(t *trial) {
	values := t.beyond()
	if len(values) == 0 {
		t.skipf("this provider takes every number")
	}
	for _, v := range values {
		it := t.item(0)
		it.Value = v
		d := t.session().deliver(t.says(Accept), it)
		if r := d.requestOf(it.ID); r != nil && !carries(r, v) {
			t.failf("value %s is sent as another number", v)
		} else if r == nil {
			d.want(t, "not sending a value", exporter.Retry)
		}
	}
}

func itemsUnicode(t *trial) {
	for _, c := range []string{
		"Zoë", "株式会社", "🦄", `"quoted" \ back`, "a&b=c;d", "tab\tnew\nline", "e\u0301 \u2028 \u200f", strings.Repeat("长", 60), "<script>", "%41", "null",
	} {
		it := t.item(0)
		it.Customer = c
		d := t.session().deliver(t.says(Accept), it)
		r := d.requestOf(it.ID)
		switch {
		case r == nil:
			d.want(t, "not sending a customer", exporter.Retry)
		case !utf8.Valid(r.Body):
			t.failf("for customer %q the body is no UTF-8", c)
		case !carries(r, c):
			t.failf("customer %q is not in the request as it is", c)
		}
	}
}

func itemsCorrection(t *trial) {
	m := t.suite.manifest
	correct := func(method exporter.CorrectionMode) exporter.Item {
		it := t.item(0)
		it.Kind, it.Value = "correction", "-1"
		it.Corrects = &exporter.Corrects{Method: method, Identifier: "fencepost_original" + word(t.random, 6), Value: "5"}
		return it
	}
	for _, method := range []exporter.CorrectionMode{exporter.CorrectCancel, exporter.CorrectNegative} {
		// An exporter that cancels takes a negative event too, where a cancel
		// is no longer possible.
		declared := m.Corrections == method || m.Corrections == exporter.CorrectCancel && m.Values.Negative
		it := correct(method)
		d := t.session().deliver(t.says(Accept), it)
		r := d.requestOf(it.ID)
		want := it.Identifier
		if method == exporter.CorrectCancel {
			want = it.Corrects.Identifier
		}
		switch {
		case declared && r == nil:
			t.failf("a correction by %s, which the manifest declares, is not sent", method)
		case declared && !carries(r, want):
			t.failf("a correction by %s does not carry the identifier that it is recognised by", method)
		case !declared && r != nil:
			t.failf("a correction by %s is sent, which the manifest does not declare", method)
		}
	}
	it := correct("") // of a later version: an enum value that nobody knows
	if d := t.session().deliver(t.says(Accept), it); len(d.requests) > 0 {
		t.failf("a correction by an unknown method is sent")
	} else {
		d.want(t, "a correction by an unknown method", exporter.Retry)
	}
}
