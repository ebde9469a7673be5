package sqlite

import (
	"encoding/json"

	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// receipt answers the outcome of a CloudEvent that was received before, or nil.
func (r *recorder) receipt(c *conn, rc *storage.Receipt) (*storage.UnitResult, error) {
	var dedupe storage.Hash
	var seqs []int64
	found, err := c.bind(qReceiptDedupe).text(rc.Tenant).text(rc.ReceiptID).one(func(row *row) {
		dedupe = row.hash()
		row.decode(&seqs)
	})
	if err != nil || !found {
		return nil, err
	}
	if dedupe != rc.DedupeHash {
		return &storage.UnitResult{Outcome: storage.Conflict}, nil
	}
	out := &storage.UnitResult{Outcome: storage.Duplicate}
	for _, seq := range seqs {
		e := storage.EntryResult{Seq: seq}
		found, err := c.bind(qEventName).int(seq).one(func(row *row) {
			e.EventID, e.Feature = row.text(), row.text()
		})
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, conflictUnresolved()
		}
		out.Entries = append(out.Entries, e)
	}
	return out, nil
}

func (r *recorder) insertReceipt(c *conn, rc *storage.Receipt, seqs []int64) error {
	features := rc.Features
	if features == nil {
		features = []string{}
	}
	f, err := json.Marshal(features)
	if err != nil {
		return err
	}
	s, err := json.Marshal(seqs)
	if err != nil {
		return err
	}
	n, err := c.bind(qReceiptInsert).
		text(rc.Tenant).text(rc.ReceiptID).text(rc.Source).text(rc.ID).text(rc.Type).
		time(rc.OccurredAt).hash(&rc.DedupeHash).text(string(f)).text(string(s)).
		json(rc.Body).time(r.now).run()
	if err == nil && n == 0 {
		return conflictUnresolved()
	}
	return err
}
