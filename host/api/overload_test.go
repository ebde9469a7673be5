package api_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/engine"
	"github.com/fencepost/fencepost/plugins/storage/sqlite"
)

// serveOne starts an API whose engine records one call at a time.
func serveOne(t *testing.T) *service {
	t.Helper()
	handler, s := buildOver(t, func(c *engine.Config) { c.RecordConcurrency = 1 })
	return s.start(handler)
}

// One more request than may record at a time is told so at once, and nothing of
// it is recorded.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := serveOne(t)
	held, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := s.store.WithTx(context.Background(), func(*sqlite.Tx) error {
			close(held)
			<-release
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	// Both wait for the store; whichever takes the place, the other is refused.
	answers := make(chan int, 2)
	for _, id := range []string{"a", "b"} {
		wg.Go(func() {
			a := s.post(plainJSON, plain(id, "1"))
			answers <- a.status
			if a.status == http.StatusServiceUnavailable {
				if p := s.refused(a, http.StatusServiceUnavailable, "unavailable", ""); p.Code != "overloaded" {
					t.Errorf("%+v", p)
				}
			}
		})
	}
	if got := <-answers; got != http.StatusServiceUnavailable {
		t.Errorf("the first answer is %d", got)
	}
	close(release)
	if got := <-answers; got != http.StatusOK {
		t.Errorf("the second answer is %d", got)
	}
	wg.Wait()
	s.recorded(s.post(plainJSON, plain("c", "1")), http.StatusOK)
}

// A client that sends slowly keeps nobody from recording (T10).
func TestSlowBodyHoldsNoPlace(t *testing.T) {
	t.Parallel()
	s := serveOne(t)
	body, write := io.Pipe()
	began := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, s.url+"/v1/events", signalled(body, began))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", plainJSON)
		res, err := s.client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("the slow request: %d", res.StatusCode)
		}
	})
	<-began
	if _, err := write.Write([]byte(plain("a", "1")[:10])); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		s.recorded(s.post(plainJSON, plain("b", "1")), http.StatusOK)
	}
	if _, err := write.Write([]byte(plain("a", "1")[10:])); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	wg.Wait()
}

// signalled tells when a body is first read.
func signalled(r io.Reader, began chan struct{}) io.Reader {
	return io.MultiReader(&once{began: began}, r)
}

type once struct {
	began chan struct{}
	done  bool
}

func (o *once) Read([]byte) (int, error) {
	if !o.done {
		o.done = true
		close(o.began)
	}
	return 0, io.EOF
}
