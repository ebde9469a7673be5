package meter

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

const headerPrefix = "ce-"

// DecodeCloudEventBinary reads an event in binary mode: attributes from the
// ce-* headers, data from the body as Content-Type says. A header value may be
// percent-encoded and, for the sake of old senders, quoted; one that repeats is
// refused. Other headers are not looked at. An empty body is no data.
func DecodeCloudEventBinary(header http.Header, body []byte) (CloudEvent, error) {
	if errs := CheckBatch(1, len(body)); errs != nil {
		return CloudEvent{}, errs
	}
	var (
		e    CloudEvent
		errs Errors
		seen = make(map[string]bool)
	)
	for _, key := range slices.Sorted(maps.Keys(header)) {
		name, found := strings.CutPrefix(strings.ToLower(key), headerPrefix)
		if !found {
			continue
		}
		value, rule := headerValue(name, header[key])
		if rule != "" {
			errs.add(nameOr(name, "headers"), rule)
			continue
		}
		if seen[name] { // a map built by hand may hold Ce-Id and ce-id
			errs.add(name, "once")
		}
		seen[name] = true
		e.set(&errs, name, value)
	}
	if !seen["specversion"] {
		errs.add("specversion", `required, "1.0", in the header ce-specversion`)
	}
	if types := header.Values("Content-Type"); len(types) > 0 {
		e.DataContentType = types[0]
		if len(types) > 1 {
			errs.add("datacontenttype", "once")
		}
	}
	e.carry(body)
	checkCloudEvent(&errs, e)
	if errs != nil {
		return CloudEvent{}, errs
	}
	return e, nil
}

// headerValue returns what a header says, or the rule that it breaks.
func headerValue(name string, values []string) (value, rule string) {
	switch {
	case !attributeName(name):
		return "", "an attribute name of at most 64 lower-case letters and digits"
	case name == "datacontenttype":
		return "", "in the header Content-Type, without the prefix ce-"
	case name == "data":
		return "", "in the body"
	case len(values) != 1:
		return "", "once"
	}
	value, ok := unquote(strings.Trim(values[0], " \t"))
	if ok {
		var err error
		value, err = url.PathUnescape(value)
		ok = err == nil && utf8.ValidString(value)
	}
	if !ok {
		return "", "UTF-8 in percent-encoding"
	}
	return value, ""
}

// unquote undoes a quoted-string of RFC 7230; anything else stays as it is.
func unquote(text string) (string, bool) {
	if !strings.HasPrefix(text, `"`) {
		return text, true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			return b.String(), i == len(text)-1
		case '\\':
			if i++; i == len(text) {
				return "", false
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
