package guest

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/wire/sqlv1"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

// The linker drops what nothing reaches, so a module imports only the
// capabilities whose option its main names; TestImports holds that.

// WithHTTP gives the exporter [capability.Host].HTTP.
func WithHTTP() Option { return func(h *capability.Host) { h.HTTP = hostHTTP{} } }

// WithAppend gives the exporter [capability.Host].Append.
func WithAppend() Option { return func(h *capability.Host) { h.Append = hostAppend{} } }

// WithLog gives the exporter [capability.Host].Log.
func WithLog() Option { return func(h *capability.Host) { h.Log = hostLog{} } }

// WithClock gives the exporter [capability.Host].Clock.
func WithClock() Option { return func(h *capability.Host) { h.Clock = hostClock{} } }

// WithRandom gives the exporter [capability.Host].Random.
func WithRandom() Option { return func(h *capability.Host) { h.Random = hostRandom{} } }

// WithSQL gives the plugin [capability.Host].SQL.
func WithSQL() Option { return func(h *capability.Host) { h.SQL = hostSQL{} } }

//go:wasmimport fencepost.sql/v1 send
func sqlSend(ptr unsafe.Pointer, length uint32) int32

//go:wasmimport fencepost.sql/v1 receive
func sqlReceive(ptr unsafe.Pointer, length uint32) uint32

//go:wasmimport fencepost.http/v1 send
func httpSend(ptr unsafe.Pointer, length uint32) int32

//go:wasmimport fencepost.http/v1 receive
func httpReceive(ptr unsafe.Pointer, length uint32) uint32

//go:wasmimport fencepost.append/v1 send
func appendSend(ptr unsafe.Pointer, length uint32) int32

//go:wasmimport fencepost.append/v1 receive
func appendReceive(ptr unsafe.Pointer, length uint32) uint32

//go:wasmimport fencepost.log/v1 write
func logWrite(level int32, ptr unsafe.Pointer, length uint32)

//go:wasmimport fencepost.clock/v1 now
func clockNow() int64

//go:wasmimport fencepost.random/v1 read
func randomRead(ptr unsafe.Pointer, length uint32)

type hostHTTP struct{}

func (hostHTTP) Send(_ context.Context, requests []capability.Request) ([]capability.Response, error) {
	batch := wirev1.EncodeRequests(requests)
	size := httpSend(pointer(batch), uint32(len(batch)))
	if size < 0 {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "batch_refused", Rule: "a batch within the host's limits"}
	}
	answers := make([]byte, size)
	answers = answers[:min(httpReceive(pointer(answers), uint32(size)), uint32(size))]
	responses, err := wirev1.DecodeResponses(answers, len(requests))
	var refusal *sdk.Error
	switch {
	case err == nil:
		return responses, nil
	case errors.As(err, &refusal):
		return nil, refusal
	}
	// The host acted and its answer is unreadable: the requests may have been
	// sent, so this is no refusal of the batch.
	responses = make([]capability.Response, len(requests))
	for i := range responses {
		responses[i] = capability.Response{Failure: capability.FailureUnknown, Reason: "answers_lost"}
	}
	return responses, nil
}

type hostAppend struct{}

func (hostAppend) Append(_ context.Context, records []capability.Record) ([]capability.Appended, error) {
	batch := wirev1.EncodeRecords(records)
	size := appendSend(pointer(batch), uint32(len(batch)))
	if size < 0 {
		return nil, &sdk.Error{Tag: sdk.TagInvalid, Code: "batch_refused", Rule: "a batch within the host's limits"}
	}
	answers := make([]byte, size)
	answers = answers[:min(appendReceive(pointer(answers), uint32(size)), uint32(size))]
	return decodeAppended(answers, len(records))
}

type hostSQL struct{}

func (hostSQL) Do(_ context.Context, work capability.Work) (capability.Done, error) {
	payload, err := sqlv1.EncodeWork(work)
	if err != nil {
		return capability.Done{}, err
	}
	size := sqlSend(pointer(payload), uint32(len(payload)))
	if size < 0 {
		return capability.Done{}, workRefused(nil)
	}
	answer := make([]byte, size)
	return doneOf(answer[:min(sqlReceive(pointer(answer), uint32(size)), uint32(size))], len(work.Statements))
}

type hostLog struct{}

func (hostLog) Write(level capability.Level, message string) {
	b := []byte(message)
	logWrite(int32(level), pointer(b), uint32(len(b)))
}

type hostClock struct{}

func (hostClock) Now() time.Time { return time.UnixMicro(clockNow()).UTC() }

type hostRandom struct{}

func (hostRandom) Read(p []byte) error {
	randomRead(pointer(p), uint32(len(p)))
	return nil
}
