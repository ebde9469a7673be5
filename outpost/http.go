package outpost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk"
)

// httpTransport sends batches to POST /v1/events of the engine.
type httpTransport struct {
	client  *http.Client
	url     string
	token   string
	timeout time.Duration
}

const (
	batchMedia = "application/cloudevents-batch+json"
	// answerMax bounds what is read of an answer: 500 results are less.
	answerMax = 4 << 20
)

func newHTTPTransport(cfg Config) (*httpTransport, error) {
	u, err := url.Parse(cfg.Server)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, sdk.Invalid("outpost.server", "http://host:port or https://host, without user and query")
	}
	return &httpTransport{client: cfg.HTTP, url: strings.TrimSuffix(u.String(), "/") + "/v1/events", token: cfg.Token, timeout: cfg.Timeout}, nil
}

// answer is what the engine says of a batch, or of a request that it refused.
type answer struct {
	Results []struct {
		Index   int    `json:"index"`
		Outcome string `json:"outcome"`
		Error   *struct {
			Tag string `json:"tag"`
		} `json:"error"`
	} `json:"results"`
	ItemIndex *int   `json:"item_index"`
	Code      string `json:"code"`
}

var errAnswer = errors.New("the engine answered what it never answers")

// send delivers one batch. A request that is refused as a whole is cut in two, so
// that one event cannot take others with it. // F2, C-T10.
func (t *httpTransport) send(ctx context.Context, batch []queued) ([]fate, error) {
	fates := make([]fate, len(batch))
	for i := range fates {
		fates[i] = unknown
	}
	status, ans, err := t.post(ctx, batch)
	switch {
	case err != nil:
		return fates, err
	case status == http.StatusOK || status == http.StatusMultiStatus:
		return fates, read(ans, fates)
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusNotFound, status == http.StatusRequestTimeout,
		status >= 500, status < 400:
		return fates, fmt.Errorf("the engine answered %d", status) // the destination's fault, not an event's
	}
	if len(batch) == 1 {
		fates[0] = refused
		return fates, nil
	}
	half := len(batch) / 2
	if i := ans.ItemIndex; i != nil && *i >= 0 && *i < len(batch) {
		fates[*i] = refused
		rest := append(append([]queued{}, batch[:*i]...), batch[*i+1:]...)
		others, err := t.send(ctx, rest)
		copy(fates[:*i], others[:*i])
		copy(fates[*i+1:], others[*i:])
		return fates, err
	}
	first, errFirst := t.send(ctx, batch[:half])
	second, errSecond := t.send(ctx, batch[half:])
	copy(fates, first)
	copy(fates[half:], second)
	return fates, errors.Join(errFirst, errSecond)
}

// read turns the outcomes of an answer into fates, in the order of the batch.
func read(ans answer, fates []fate) error {
	for _, r := range ans.Results {
		if r.Index < 0 || r.Index >= len(fates) {
			return errAnswer
		}
		switch r.Outcome {
		case "inserted", "duplicate", "unmatched":
			fates[r.Index] = taken
		case "conflict":
			fates[r.Index] = held
		case "invalid":
			fates[r.Index] = refused
		}
	}
	return nil
}

func (t *httpTransport) post(ctx context.Context, batch []queued) (status int, ans answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	body := bytes.NewBuffer([]byte{'['})
	for i, q := range batch {
		if i > 0 {
			body.WriteByte(',')
		}
		body.Write(q.text)
	}
	body.WriteByte(']')
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, body)
	if err != nil {
		return 0, ans, err
	}
	req.Header.Set("Content-Type", batchMedia)
	if t.token != "" {
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	res, err := t.client.Do(req)
	if err != nil {
		return 0, ans, sdk.Unavailable("connection", err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerMax))
	if err != nil {
		return 0, ans, sdk.Unavailable("connection", err)
	}
	if seconds, bad := strconv.Atoi(res.Header.Get("Retry-After")); bad == nil && seconds > 0 && seconds < 3600 {
		if res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusServiceUnavailable {
			return res.StatusCode, ans, waitError(time.Duration(seconds) * time.Second)
		}
	}
	if res.StatusCode == http.StatusTooManyRequests {
		return res.StatusCode, ans, sdk.Unavailable("throttled", nil)
	}
	if json.Unmarshal(text, &ans) != nil && res.StatusCode < 300 {
		return res.StatusCode, ans, errAnswer
	}
	return res.StatusCode, ans, nil
}
