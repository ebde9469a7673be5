package stripedouble_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/internal/stripedouble"
)

// BenchmarkMeterEvents prints requests per second over keep-alive TLS. Client
// and server share the cores, so a server alone does better.
func BenchmarkMeterEvents(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run("sync="+strconv.FormatBool(sync), func(b *testing.B) {
			s, err := stripedouble.New(stripedouble.Config{Dir: b.TempDir(), Sync: sync, SerialLimit: -1})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.Pool()}, MaxIdleConnsPerHost: 64}
			b.Cleanup(func() {
				tr.CloseIdleConnections()
				_ = s.Close()
			})
			client := &http.Client{Transport: tr}
			url := s.URL() + "/v1/billing/meter_events"
			form := "event_name=llm_tokens&payload%5Bstripe_customer_id%5D=cus_1&payload%5Bvalue%5D=25&identifier=fencepost_"
			var n atomic.Int64
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					id := strconv.FormatInt(n.Add(1), 10)
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(form+id))
					if err != nil {
						b.Error(err)
						return
					}
					req.Header.Set("Authorization", "Bearer "+testKey)
					req.Header.Set("Idempotency-Key", id+"-1")
					resp, err := client.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						b.Errorf("status %d", resp.StatusCode)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
