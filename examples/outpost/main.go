// Command outpost is a service that refuses a request when the customer's balance is
// used up. Any number of instances share one Redis, and none asks the engine before
// it answers.
//
//	outpost -listen 127.0.0.1:9001 -redis redis://127.0.0.1:6379 -engine http://127.0.0.1:8787
//	curl -X POST '127.0.0.1:9001/complete?customer=acme&tokens=120'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/outpost"
	"github.com/fencepost/fencepost/outpost/state"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9001", "where to serve")
	address := flag.String("redis", "redis://127.0.0.1:6379", "the Redis that the instances share")
	engine := flag.String("engine", "http://127.0.0.1:8787", "fencepost serve")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen, *address, *engine); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func run(ctx context.Context, listen, address, engine string) error {
	rc, err := state.Dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = rc.Close() }()
	c, err := outpost.Open(ctx, outpost.Config{Redis: rc, Org: "example", Server: engine})
	if err != nil {
		return err
	}
	srv := &http.Server{Addr: listen, Handler: service(c), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	// What was tracked is delivered before the process ends.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return c.Close(last)
}

// service answers POST /complete.
func service(c *outpost.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /complete", func(w http.ResponseWriter, r *http.Request) {
		customer := r.FormValue("customer")
		tokens, err := strconv.Atoi(r.FormValue("tokens"))
		if err != nil || customer == "" || tokens < 1 {
			http.Error(w, "customer and tokens", http.StatusBadRequest)
			return
		}
		left, err := c.Balance(r.Context(), customer, "tokens")
		switch {
		case err != nil: // not to know is no permission
			http.Error(w, "the balance is not known", http.StatusServiceUnavailable)
			return
		case left.Balance.Sign() <= 0:
			http.Error(w, "the balance is used up", http.StatusPaymentRequired)
			return
		}
		// Here the work is done, and then counted.
		data, err := json.Marshal(map[string]string{"tokens": strconv.Itoa(tokens)})
		if err == nil {
			err = c.Track(r.Context(), outpost.Event{Type: "llm.completion", Customer: customer, Data: data})
		}
		if err != nil && !errors.Is(err, outpost.ErrNotLocal) { // that one is delivered all the same
			http.Error(w, "not counted", http.StatusInternalServerError)
			return
		}
		if left, err = c.Balance(r.Context(), customer, "tokens"); err != nil {
			_, _ = w.Write([]byte("done\n"))
			return
		}
		_, _ = w.Write([]byte("done, left: " + left.Balance.String() + "\n"))
	})
	return mux
}
