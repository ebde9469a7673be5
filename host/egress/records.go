package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// KeyOf returns what a provider without identifiers recognises an item by, one
// value for each part of the key, for [CallItem]. nil if it has identifiers.
func KeyOf(r *exporter.Records, item exporter.Item) []string {
	if r == nil {
		return nil
	}
	key := make([]string, len(r.Key))
	for i, k := range r.Key {
		switch k.Field {
		case "customer":
			key[i] = item.Customer
		case "timestamp":
			key[i] = strconv.FormatInt(item.Timestamp.Unix(), 10)
		case "value":
			key[i] = item.Value
		default:
			key[i] = item.Mapping[strings.TrimPrefix(k.Field, mappingPrefix)]
		}
	}
	return key
}

const mappingPrefix = "mapping."

// checkRecords refuses what the host could not compare.
func checkRecords(r *exporter.Records) error {
	if r == nil {
		return nil
	}
	if _, ok := splitPointer(r.Path); !ok || len(r.Key) == 0 || len(r.Answers) == 0 {
		return invalidAt("records", 0, "a path that is a JSON pointer, a key and lists of answers")
	}
	for i, k := range r.Key {
		_, ok := splitPointer(k.Path)
		known := k.Field == "customer" || k.Field == "timestamp" || k.Field == "value" ||
			strings.HasPrefix(k.Field, mappingPrefix) && k.Field != mappingPrefix
		if !ok || !known {
			return invalidAt("records.key", i, "customer, timestamp, value or mapping.NAME, and a JSON pointer")
		}
	}
	for i, a := range r.Answers {
		_, path := splitPointer(a.Path)
		_, record := splitPointer(a.Record)
		twice := slices.ContainsFunc(r.Answers[:i], func(b exporter.RecordAnswers) bool { return a.Path == b.Path })
		if !path || !record || twice {
			return invalidAt("records.answers", i, "JSON pointers, of which no list is named twice")
		}
	}
	return nil
}

// checkBody reports why the records of a request are not those of its items, or
// "". Record i must say what items[i] says, and no two the same: the answer could
// not tell them apart.
func (c *Client) checkBody(body []byte, items []CallItem) string {
	r := c.cfg.Records
	if uniqueNames(body) != nil {
		return reasonRecordsDiffer // two readers may take different ones of two members
	}
	records, ok := listAt(body, r.Path)
	if !ok || len(records) != len(items) {
		return reasonRecordsDiffer
	}
	for i, record := range records {
		if !c.isRecord(record, "", items[i]) {
			return reasonRecordsDiffer
		}
		for _, other := range items[:i] {
			if slices.Equal(other.Key, items[i].Key) {
				return reasonRecordsAlike
			}
		}
	}
	return ""
}

// isRecord reports whether the record at a pointer in element is that of an item.
func (c *Client) isRecord(element json.RawMessage, pointer string, it CallItem) bool {
	if len(it.Key) != len(c.cfg.Records.Key) {
		return false
	}
	for i, k := range c.cfg.Records.Key {
		value, ok := lookup(element, pointer+k.Path)
		if !ok || it.Key[i] == "" {
			return false
		}
		if value == it.Key[i] {
			continue
		}
		if (k.Field != "timestamp" && k.Field != "value") || !sameNumber(value, it.Key[i]) {
			return false
		}
	}
	return true
}

// sameNumber compares numbers in different spellings: 5, 5.0 and 5E0.
func sameNumber(a, b string) bool {
	x, ok := number(a)
	y, fine := number(b)
	return ok && fine && x.Cmp(y) == 0
}

func number(s string) (*big.Rat, bool) {
	mantissa, power, scientific := strings.Cut(strings.ToLower(s), "e")
	if n, err := strconv.Atoi(power); scientific && (err != nil || n > 30 || n < -30) || len(s) > 64 || strings.Trim(mantissa, "0123456789.-") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// classifyRecord says what an answer that speaks of records says of one item.
// What it does not name, or names in two places, is unknown.
func (c *Client) classifyRecord(a answer, it CallItem) (class exporter.HostClass, mendable bool, code string) {
	var found []json.RawMessage
	var in string
	for _, list := range c.cfg.Records.Answers {
		elements, _ := listAt(a.body, list.Path)
		for _, e := range elements {
			if c.isRecord(e, list.Record, it) {
				found, in = append(found, e), list.Path
			}
		}
	}
	if len(found) != 1 {
		return exporter.ClassIndefinite, false, reasonRecordMissing
	}
	for i := range c.cfg.Answers {
		p := &c.cfg.Answers[i]
		if p.In == "" || p.In != in || p.Status != a.status {
			continue
		}
		if code, ok := fits(p, found[0], it.Identifier); ok {
			return hostClass(p.Class), p.Class == exporter.AnswerMendable, code
		}
	}
	return exporter.ClassIndefinite, false, reasonRecordUnknown
}

// listAt returns the elements of the list at a pointer.
func listAt(doc []byte, pointer string) ([]json.RawMessage, bool) {
	value, ok := at(doc, pointer)
	if !ok || len(value) == 0 || value[0] != '[' {
		return nil, false
	}
	var list []json.RawMessage
	return list, json.Unmarshal(value, &list) == nil
}

var errNameTwice = errors.New("a member occurs twice")

// uniqueNames fails if a JSON object in doc has two members of one name, or if
// doc is not one JSON value.
func uniqueNames(doc []byte) error {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := uniqueValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errNameTwice
	}
	return nil
}

func uniqueValue(d *json.Decoder, depth int) error {
	t, err := d.Token()
	if err != nil || depth > 64 {
		return errors.Join(err, errNameTwice)
	}
	open, _ := t.(json.Delim)
	if open == 0 {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			name, err := d.Token()
			text, _ := name.(string)
			// Some readers ignore case.
			if text = strings.ToLower(text); err != nil || seen[text] {
				return errors.Join(err, errNameTwice)
			}
			seen[text] = true
		}
		if err := uniqueValue(d, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
