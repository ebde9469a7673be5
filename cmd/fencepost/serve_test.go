package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A name that a page made to point here is not this machine (DNS rebinding).
func TestLoopbackHost(t *testing.T) {
	t.Parallel()
	h := loopbackHost(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for host, want := range map[string]int{
		"localhost": 204, "LOCALHOST:8787": 204, "127.0.0.1:8787": 204, "127.1.2.3": 204, "[::1]:8787": 204, "[::1]": 204,
		"evil.example": 421, "evil.example:8787": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"10.0.0.1": 421, "0.0.0.0:8787": 421, "": 421, "::1.evil": 421,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/livez", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
		if want == http.StatusMisdirectedRequest && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q: %s", host, w.Body)
		}
	}
}
