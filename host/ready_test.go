package host_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// slowStore answers nobody before it is told to.
type slowStore struct {
	*sqlite.Adapter
	asked, answer chan struct{}
}

func (s *slowStore) Ping(ctx context.Context) error {
	s.asked <- struct{}{}
	select {
	case <-s.answer:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return sdk.Unavailable("canceled", err)
	}
	return nil
}

// A probe whose client has left, before or while the store is asked, does not
// decide what the next one hears.
func TestReadinessIsNobodysContext(t *testing.T) {
	t.Parallel()
	probe := func(ctx context.Context, h http.Handler) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
		return w
	}
	store := &slowStore{Adapter: newStore(t), asked: make(chan struct{}, 10), answer: make(chan struct{})}
	srv := open(t, hostConfig(store, settings(newDouble(t)))).Handler()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan int)
	go func() { left <- probe(ctx, srv).Code }()
	<-store.asked
	leave()
	close(store.answer)
	<-left
	if w := probe(t.Context(), srv); w.Code != http.StatusOK {
		t.Errorf("after a probe that left: %d %s", w.Code, w.Body)
	}
	gone := &slowStore{Adapter: newStore(t), asked: make(chan struct{}, 10), answer: make(chan struct{})}
	close(gone.answer)
	srv = open(t, hostConfig(gone, settings(newDouble(t)))).Handler()
	probe(ctx, srv)
	if w := probe(t.Context(), srv); w.Code != http.StatusOK {
		t.Errorf("after a probe that had left: %d %s", w.Code, w.Body)
	}
}
