package providerdouble

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"
)

// AWSMarketplace takes BatchMeterUsage as AWS's metering service does. A record
// is recognised by customer, dimension and time: the same again is taken once, one
// with another quantity is a DuplicateRecord. What is wrong with one record's
// customer, dimension or time aborts the request as a whole.
type AWSMarketplace struct {
	Server
	// Keys are secret access keys by their id. Set before Start, as the rest.
	Keys       map[string]string
	Product    string
	Dimensions []string
	// Customers are the accounts that exist; true: subscribed.
	Customers map[string]bool

	taken map[awsRecord]int64 // quantities
	left  int
}

const (
	awsRecordsMax = 25
	awsBytesMax   = 1 << 20
	awsPast       = 6 * time.Hour
)

// awsRecord is what a record is recognised by.
type awsRecord struct {
	Customer, Dimension string
	At                  int64
}

type usageRecord struct {
	Timestamp            float64
	CustomerAWSAccountId string //nolint:revive // AWS's own name
	Dimension            string
	Quantity             *json.Number `json:",omitempty"`
}

// Start listens.
func (a *AWSMarketplace) Start(ctx context.Context) error {
	a.taken = map[awsRecord]int64{}
	return a.Server.Start(ctx, a.serveAPI)
}

// LeaveNext lets the next request come back with its first n records among
// UnprocessedRecords.
func (a *AWSMarketplace) LeaveNext(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = n
}

// Sum is what a customer is charged for a dimension, and in how many records.
func (a *AWSMarketplace) Sum(customer, dimension string) (quantity int64, records int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for r, q := range a.taken {
		if r.Customer == customer && r.Dimension == dimension {
			quantity += q
			records++
		}
	}
	return quantity, records
}

// Put takes a record that somebody else sent.
func (a *AWSMarketplace) Put(customer, dimension string, at time.Time, quantity int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken[awsRecord{customer, dimension, at.Unix()}] = quantity
}

// exceptionOf answers as the AWS JSON protocol has it.
func exceptionOf(w http.ResponseWriter, status int, name string) {
	w.Header().Set("x-amzn-RequestId", "double")
	answer(w, status, fmt.Sprintf(`{"__type":"com.amazonaws.marketplacemetering#%s","message":"%s"}`, name, name))
}

func (a *AWSMarketplace) serveAPI(w http.ResponseWriter, r *http.Request, body []byte) {
	now := a.clock()
	var request struct {
		ProductCode  string
		UsageRecords []usageRecord
	}
	switch name := verifySigV4(r, body, a.Keys, now); {
	case name != "":
		exceptionOf(w, http.StatusForbidden, name)
	case r.Method != http.MethodPost || r.URL.Path != "/" || r.Header.Get("X-Amz-Target") != "AWSMPMeteringService.BatchMeterUsage":
		exceptionOf(w, http.StatusBadRequest, "UnknownOperationException")
	case len(body) >= awsBytesMax || r.Header.Get("Content-Type") != "application/x-amz-json-1.1" || json.Unmarshal(body, &request) != nil:
		exceptionOf(w, http.StatusBadRequest, "SerializationException")
	case request.ProductCode != a.Product:
		exceptionOf(w, http.StatusBadRequest, "InvalidProductCodeException")
	default:
		a.meter(w, request.UsageRecords, now)
	}
}

func (a *AWSMarketplace) meter(w http.ResponseWriter, records []usageRecord, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(records) > awsRecordsMax {
		exceptionOf(w, http.StatusBadRequest, "ValidationException")
		return
	}
	quantities := make([]int64, len(records))
	for i, r := range records {
		if name := a.aborts(r, now); name != "" {
			exceptionOf(w, http.StatusBadRequest, name)
			return
		}
		if r.Quantity == nil {
			continue
		}
		n, err := r.Quantity.Int64()
		if err != nil || n < 0 || n > math.MaxInt32 {
			exceptionOf(w, http.StatusBadRequest, "ValidationException")
			return
		}
		quantities[i] = n
	}
	leave := min(a.left, len(records))
	a.left = 0
	type result struct {
		UsageRecord      usageRecord
		MeteringRecordId string `json:",omitempty"` //nolint:revive // AWS's own name
		Status           string
	}
	out := struct {
		Results            []result
		UnprocessedRecords []usageRecord
	}{[]result{}, append([]usageRecord{}, records[:leave]...)}
	for i, r := range records[leave:] {
		key := awsRecord{r.CustomerAWSAccountId, r.Dimension, int64(r.Timestamp)}
		old, known := a.taken[key]
		res := result{UsageRecord: r, Status: "Success"}
		switch n := quantities[leave+i]; {
		case !a.Customers[r.CustomerAWSAccountId]:
			res.Status = "CustomerNotSubscribed"
		case known && old != n:
			res.Status = "DuplicateRecord"
		default:
			a.taken[key] = n
			res.MeteringRecordId = fmt.Sprintf("rec-%d", len(a.taken))
		}
		out.Results = append(out.Results, res)
	}
	reply(w, http.StatusOK, out)
}

// aborts names the exception of a record that is wrong, or nothing.
func (a *AWSMarketplace) aborts(r usageRecord, now time.Time) string {
	known := false
	for _, d := range a.Dimensions {
		known = known || d == r.Dimension
	}
	_, exists := a.Customers[r.CustomerAWSAccountId]
	at := time.Unix(int64(r.Timestamp), 0)
	switch {
	case !exists:
		return "InvalidCustomerIdentifierException"
	case !known:
		return "InvalidUsageDimensionException"
	case now.Sub(at) >= awsPast, at.After(now):
		return "TimestampOutOfBoundsException"
	}
	return ""
}
