package protocol_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/outpost/protocol"
)

// 9.6: what a later release says more is no error; a frame that is no message is.
func TestDecode(t *testing.T) {
	t.Parallel()
	for frame, ok := range map[string]bool{
		`{"type":"dance","later":{"x":[1]},"payload":{"a":1}}`: true,
		`{"type":"hello"}`:    true,
		`{"type":""}`:         false,
		`{"type":7}`:          false,
		`[]`:                  false,
		`null`:                false,
		``:                    false,
		`{"type":"a"}{}`:      false,
		"{\"type\":\"hello\"": false,
		`{"type":"question","rid":"` + strings.Repeat("x", 129) + `"}`:                false,
		`{"type":"hello","payload":"` + strings.Repeat("x", protocol.MaxFrame) + `"}`: false,
	} {
		if _, err := protocol.Decode([]byte(frame)); (err == nil) != ok || (err != nil && !errors.Is(err, protocol.ErrFrame)) {
			t.Errorf("%.80s: %v", frame, err)
		}
	}
}

// 9.6: a page of 1000 ids of the greatest length fits into a frame, both ways.
func TestPageFits(t *testing.T) {
	t.Parallel()
	ids := make([]string, protocol.MaxIDs)
	for i := range ids {
		ids[i] = strings.Repeat("é", 64) // 128 bytes
	}
	id := protocol.Identity{Customer: strings.Repeat("c", 128), Reducer: "r_" + strings.Repeat("0", 32)}
	for kind, payload := range map[protocol.Type]any{
		protocol.TypeQuestion: protocol.Question{Identity: id, Events: ids},
		protocol.TypeSnapshot: protocol.Snapshot{Identity: id, Events: ids},
	} {
		frame, err := protocol.Encode(kind, "1", payload)
		if err != nil || len(frame) > protocol.MaxFrame {
			t.Errorf("%s: %d bytes, %v", kind, len(frame), err)
		}
	}
}

// A frame of whoever reaches the port breaks nothing, and what is read is written
// as the same message.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"type":"question","rid":"1","payload":{"customer":"a","reducer":"r_0","definition":"d","cold_floor":300000000,"events":["e"]}}`))
	f.Add([]byte(`{"type":"interest","payload":{"add":[{"customer":"a","reducer":"r_0"}],"remove":[]}}`))
	f.Add([]byte(`{"type":"snapshot","rid":"1","payload":{"version":9223372036854775807,"sum":"-0.000000000001","credits":{"m":"1"},"min":null}}`))
	f.Add([]byte(`{"type":"error","payload":{"code":"rate_limited","retry_after_ms":-1}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := protocol.Decode(frame)
		if err != nil {
			return
		}
		for _, into := range []any{
			&protocol.Hello{}, &protocol.Interest{}, &protocol.Question{}, &protocol.Snapshot{}, &protocol.Changed{}, &protocol.Error{},
			&protocol.Goodbye{}, &protocol.Configuration{}, &protocol.Welcome{},
		} {
			if e.Into(into) != nil {
				continue
			}
			one, err := protocol.Encode(e.Type, e.RID, into)
			if err != nil {
				t.Fatal(err)
			}
			again, err := protocol.Decode(one)
			if len(one) > protocol.MaxFrame {
				continue
			}
			if err != nil || again.Type != e.Type || again.Into(into) != nil {
				t.Fatalf("%q: %v", one, err)
			}
			two, err := protocol.Encode(again.Type, again.RID, into)
			if err != nil || !bytes.Equal(one, two) {
				t.Fatalf("%q then %q, %v", one, two, err)
			}
		}
	})
}
