package stripedouble

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	signatureHeader = "Stripe-Signature"
	reportEvery     = 20 * time.Millisecond
	reportTimeout   = 10 * time.Second
)

// hook is where reports go.
type hook struct {
	mu          sync.Mutex
	url, secret string
}

func (h *hook) set(url, secret string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.url, h.secret = url, secret
}

func (h *hook) get() (url, secret string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.url, h.secret
}

// SetWebhook names the receiver of error reports from now on, those that wait
// included. An empty url lets them wait.
func (s *Server) SetWebhook(url, secret string) { s.hook.set(url, secret) }

// Sign returns the Stripe-Signature header of a body, or "" without a secret.
func Sign(secret string, at time.Time, body []byte) string {
	if secret == "" {
		return ""
	}
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// sendReports delivers reports, in order, until the server is closed. One that
// is not answered with 2xx is tried again, and those behind it wait.
func (s *Server) sendReports() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	client := &http.Client{Transport: &http.Transport{}, Timeout: reportTimeout}
	defer client.CloseIdleConnections()
	for wait := reportEvery; s.wait(wait); {
		wait = reportEvery
		url, _ := s.hook.get()
		if url == "" {
			continue
		}
		for _, r := range s.reports(func(m *report) bool { return !m.delivered }) {
			if !s.sendReport(ctx, client, url, r) {
				wait = 10 * reportEvery
				break
			}
		}
	}
}

func (s *Server) sendReport(ctx context.Context, client *http.Client, url string, r Report) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.Body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(signatureHeader, r.Signature)
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return false
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	s.book.commit(record{Op: opSent, At: s.clock.now().UnixMicro(), Identifier: r.ID})
	return true
}

func (s *Server) lateRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /__reports", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Reports()) })
	mux.HandleFunc("POST /__webhook", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ URL, Secret string }
		if read(w, r, &in) {
			s.SetWebhook(in.URL, in.Secret)
			done(w, nil)
		}
	})
	mux.HandleFunc("POST /__reject", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Account, Code string
			Livemode      bool
			Identifiers   []string
		}
		if !read(w, r, &in) {
			return
		}
		if err := s.Reject(in.Account, in.Livemode, in.Code, in.Identifiers...); err != nil {
			refuse(w, err.Error())
			return
		}
		done(w, nil)
	})
}
