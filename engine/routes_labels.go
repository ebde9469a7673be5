package engine

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/engine/canon"
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// labelNote is what is stored of a label that an exporter put in force: a mapping
// that no route has. A mapping's own label is the first that its content ever had,
// at any exporter, and a host of an old release is told by the later ones, too. No
// content of a feature can be equal to it: that names a provider. // O24.
func labelNote(exporter, label string) (storage.Mapping, error) {
	raw, err := json.Marshal(map[string]string{"label": label, "label_of": exporter})
	if err != nil {
		return storage.Mapping{}, fmt.Errorf("encode label: %w", err)
	}
	body, err := canon.JSON(raw)
	if err != nil {
		return storage.Mapping{}, fmt.Errorf("label of %s: %w", exporter, err)
	}
	return storage.Mapping{Version: mappingVersion(body), Label: label, Content: body}, nil
}

// mappingVersion is the hash of a mapping's content. // Q3.
func mappingVersion(content []byte) string {
	digest := canon.Digest("fencepost-mapping-v1", string(content))
	return hex.EncodeToString(digest[:16])
}

func hasMapping(set storage.RouteSet, version string) bool {
	return slices.ContainsFunc(set.Mappings, func(m storage.Mapping) bool { return m.Version == version })
}

// hadLabel reports whether the plan's label was ever in force at its exporter.
func (p RoutePlan) hadLabel(set storage.RouteSet) (bool, error) {
	m, err := labelNote(p.Exporter, p.Label)
	return err == nil && hasMapping(set, m.Version), err
}

// noteLabel adds to change that the plan's label was in force, unless that is
// stored, and reports whether it did.
func (p RoutePlan) noteLabel(set storage.RouteSet, change *storage.RouteChange) (bool, error) {
	if p.Label == "" {
		return false, nil
	}
	m, err := labelNote(p.Exporter, p.Label)
	if err != nil || hasMapping(set, m.Version) {
		return false, err
	}
	change.Mappings = append(change.Mappings, m)
	return true, nil
}

// renamedLabels are the notes by which an exporter's labels are known under its
// new name.
func renamedLabels(set storage.RouteSet, from, to string) ([]storage.Mapping, error) {
	labels := map[string]bool{}
	var notes []storage.Mapping
	for _, m := range set.Mappings {
		if labels[m.Label] {
			continue
		}
		labels[m.Label] = true
		had, err := RoutePlan{Exporter: from, Label: m.Label}.hadLabel(set)
		if err != nil {
			return nil, err
		}
		if !had {
			continue
		}
		note, err := labelNote(to, m.Label)
		if err != nil {
			return nil, err
		}
		notes = append(notes, note)
	}
	return notes, nil
}
