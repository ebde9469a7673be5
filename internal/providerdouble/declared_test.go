package providerdouble

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What is taken counts once, a lost answer included; what has no identifier is
// not taken.
func TestDeclaredTakesOnce(t *testing.T) {
	t.Parallel()
	d := &Declared{
		Identify: func(header func(string) string, _ []byte) (string, bool) { id := header("Key"); return id, id != "" },
		Answer: func(_ string, again bool) Reply {
			if again {
				return Reply{Status: http.StatusConflict}
			}
			return Reply{Take: true, Status: http.StatusCreated, Header: http.Header{"x-known": {"no"}}}
		},
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: d.Pool(), MinVersion: tls.VersionTLS12}}}
	defer client.CloseIdleConnections()
	post := func(key string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.URL()+"/usage", strings.NewReader(key+"!"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Key", key)
		res, err := client.Do(req)
		if err != nil {
			return 0, ""
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Header.Get("X-Known")
	}
	if status, known := post("a"); status != http.StatusCreated || known != "no" {
		t.Errorf("first: %d %q", status, known)
	}
	d.Next(Fault{After: true})
	if status, _ := post("b"); status != 0 {
		t.Errorf("an answer that was lost: %d", status)
	}
	for key, want := range map[string]int{"a": http.StatusConflict, "b": http.StatusConflict, "": http.StatusBadRequest} {
		if status, _ := post(key); status != want {
			t.Errorf("%q again: %d, want %d", key, status, want)
		}
	}
	if l := d.Ledger(); l.Taken != 2 || l.Requests != 4 || len(l.Items) != 2 || l.Items[1].Body != "b!" {
		t.Errorf("%+v", l)
	}
}
