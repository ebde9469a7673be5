package providerdouble

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Webhook receives Standard Webhooks 1.0.0. It takes a message once while it
// remembers its id, and answers a repetition as it answered the first.
type Webhook struct {
	Server
	// Keys are those that it accepts, as "whsec_...". Set before Start.
	Keys []string
	// Remember is how long it knows an id; zero: for ever.
	Remember time.Duration

	taken map[string][]taken
}

type taken struct {
	body string
	at   time.Time
}

// tolerance is how far a message's time may be from the receiver's.
const tolerance = 5 * time.Minute

// Start listens.
func (w *Webhook) Start(ctx context.Context) error {
	w.taken = map[string][]taken{}
	return w.Server.Start(ctx, w.receive)
}

// Taken returns how often the message of an id took effect, and its last body.
func (w *Webhook) Taken(id string) (times int, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.taken[id]
	if len(list) == 0 {
		return 0, ""
	}
	return len(list), list[len(list)-1].body
}

func (w *Webhook) receive(rw http.ResponseWriter, r *http.Request, body []byte) {
	if r.Method != http.MethodPost {
		answer(rw, http.StatusMethodNotAllowed, `{}`)
		return
	}
	now := w.clock()
	if err := w.verify(r.Header, body, now); err != nil {
		answer(rw, http.StatusUnauthorized, `{"error":"`+err.Error()+`"}`)
		return
	}
	id := r.Header.Get("webhook-id")
	w.mu.Lock()
	defer w.mu.Unlock()
	if list := w.taken[id]; len(list) == 0 || w.Remember > 0 && now.Sub(list[len(list)-1].at) > w.Remember {
		w.taken[id] = append(list, taken{string(body), now})
	}
	answer(rw, http.StatusOK, `{}`)
}

// verify follows the specification's words: the signed content is id, timestamp
// and payload joined by full stops; one valid signature is enough.
func (w *Webhook) verify(h http.Header, body []byte, now time.Time) error {
	id, at, list := h.Get("webhook-id"), h.Get("webhook-timestamp"), h.Get("webhook-signature")
	if id == "" || at == "" || list == "" {
		return errors.New("a required header is missing")
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errors.New("the timestamp is too old or too new")
	}
	content := strings.Join([]string{id, at, string(body)}, ".")
	for one := range strings.SplitSeq(list, " ") {
		version, text, _ := strings.Cut(one, ",")
		given, err := base64.StdEncoding.DecodeString(text)
		if version != "v1" || err != nil {
			continue
		}
		for _, k := range w.Keys {
			key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(k, "whsec_"))
			if err != nil {
				return errors.New("the receiver's own key is no base64")
			}
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(content))
			if hmac.Equal(mac.Sum(nil), given) {
				return nil
			}
		}
	}
	return errors.New("no signature is valid")
}
