package wirev1

import (
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// EncodeManifest encodes a DescribeAnswer.
func EncodeManifest(m exporter.Manifest) []byte {
	return encode(&DescribeAnswer{Manifest: manifestMessage(m)})
}

// DecodeManifest decodes a DescribeAnswer. Unlike elsewhere, an enum value that
// this version does not know is an error: a host that misreads a manifest would
// misread the money.
func DecodeManifest(data []byte) (exporter.Manifest, error) {
	var m DescribeAnswer
	if err := decode("DescribeAnswer", data, boundsManifest, &m); err != nil {
		return exporter.Manifest{}, err
	}
	return manifestValue(m.GetManifest())
}

func manifestMessage(m exporter.Manifest) *Manifest {
	out := &Manifest{
		Name:                m.Name,
		Version:             m.Version,
		IdentifierMaxLength: int64(m.IdentifierMaxLength),
		IdentifierHorizon:   micros(m.IdentifierHorizon),
		WindowPast:          micros(m.WindowPast),
		WindowFuture:        micros(m.WindowFuture),
		Values: &ValueDomain{
			SignificantDigits: int64(m.Values.SignificantDigits),
			MaxDecimals:       int64(m.Values.MaxDecimals),
			Negative:          m.Values.Negative,
			Zero:              m.Values.Zero,
		},
		MaxBatch:     int64(m.MaxBatch),
		Rate:         int64(m.Rate),
		Concurrency:  int64(m.Concurrency),
		SerialBy:     strs(m.SerialBy),
		Corrections:  correctionMessage(m.Corrections),
		Hosts:        strs(m.Hosts),
		MappingKeys:  strs(m.MappingKeys),
		NeedsAccount: m.NeedsAccount,
	}
	for _, c := range m.Capabilities {
		out.Capabilities = append(out.Capabilities, string(c))
	}
	for _, s := range m.Secrets {
		out.Secrets = append(out.Secrets, &Secret{
			Name: s.Name, Scheme: string(s.Scheme), Header: s.Header, Prefix: s.Prefix,
			TestPrefixes: strs(s.TestPrefixes), LivePrefixes: strs(s.LivePrefixes),
		})
	}
	for _, a := range m.Answers {
		out.Answers = append(out.Answers, &AnswerPattern{
			Class:    classMessage(a.Class),
			Status:   int64(a.Status),
			In:       a.In,
			Path:     a.Path,
			Equals:   strs(a.Equals),
			Contains: a.Contains,
		})
	}
	out.CancelWithin = micros(m.CancelWithin)
	if r := m.ReadBack; r.Sums || r.Lag != 0 || r.Granularity != 0 || len(r.Evidence) > 0 {
		out.ReadBack = &ReadBack{
			Sums: r.Sums, Lag: micros(r.Lag), Granularity: micros(r.Granularity), Evidence: strs(r.Evidence),
		}
	}
	if w := m.Webhook; w != nil {
		out.Webhook = &WebhookSignature{Scheme: w.Scheme, Header: w.Header, Secret: w.Secret, Tolerance: micros(w.Tolerance)}
	}
	out.Records, out.Every = recordsMessage(m.Records), micros(m.Every)
	return out
}

func recordsMessage(r *exporter.Records) *Records {
	if r == nil {
		return nil
	}
	out := &Records{Path: r.Path}
	for _, k := range r.Key {
		out.Key = append(out.Key, &RecordKey{Field: k.Field, Path: k.Path})
	}
	for _, a := range r.Answers {
		out.Answers = append(out.Answers, &RecordAnswers{Path: a.Path, Record: a.Record})
	}
	return out
}

func recordsValue(m *Records) *exporter.Records {
	if m == nil {
		return nil
	}
	out := &exporter.Records{Path: m.GetPath()}
	for _, k := range m.GetKey() {
		out.Key = append(out.Key, exporter.RecordKey{Field: k.GetField(), Path: k.GetPath()})
	}
	for _, a := range m.GetAnswers() {
		out.Answers = append(out.Answers, exporter.RecordAnswers{Path: a.GetPath(), Record: a.GetRecord()})
	}
	return out
}

func manifestValue(m *Manifest) (exporter.Manifest, error) {
	v := m.GetValues()
	out := exporter.Manifest{
		Name:                m.GetName(),
		Version:             m.GetVersion(),
		IdentifierMaxLength: count(m.GetIdentifierMaxLength()),
		IdentifierHorizon:   duration(m.GetIdentifierHorizon()),
		WindowPast:          duration(m.GetWindowPast()),
		WindowFuture:        duration(m.GetWindowFuture()),
		Values: exporter.ValueDomain{
			SignificantDigits: count(v.GetSignificantDigits()),
			MaxDecimals:       count(v.GetMaxDecimals()),
			Negative:          v.GetNegative(),
			Zero:              v.GetZero(),
		},
		MaxBatch:     count(m.GetMaxBatch()),
		Rate:         count(m.GetRate()),
		Concurrency:  count(m.GetConcurrency()),
		SerialBy:     strs(m.GetSerialBy()),
		Hosts:        strs(m.GetHosts()),
		MappingKeys:  strs(m.GetMappingKeys()),
		NeedsAccount: m.GetNeedsAccount(),
	}
	var ok bool
	if out.Corrections, ok = correctionValue(m.GetCorrections()); !ok {
		return exporter.Manifest{}, fmt.Errorf("decode DescribeAnswer: %w: corrections has a value of a later version", ErrMalformed)
	}
	for _, c := range m.GetCapabilities() {
		out.Capabilities = append(out.Capabilities, capability.Name(c))
	}
	for _, s := range m.GetSecrets() {
		out.Secrets = append(out.Secrets, exporter.Secret{
			Name: s.GetName(), Scheme: exporter.SecretScheme(s.GetScheme()), Header: s.GetHeader(), Prefix: s.GetPrefix(),
			TestPrefixes: strs(s.GetTestPrefixes()), LivePrefixes: strs(s.GetLivePrefixes()),
		})
	}
	for i, a := range m.GetAnswers() {
		class, ok := classValue(a.GetClass())
		if !ok {
			return exporter.Manifest{}, fmt.Errorf("decode DescribeAnswer: %w: answers[%d].class has a value of a later version", ErrMalformed, i)
		}
		out.Answers = append(out.Answers, exporter.AnswerPattern{
			Class:    class,
			Status:   count(a.GetStatus()),
			In:       a.GetIn(),
			Path:     a.GetPath(),
			Equals:   strs(a.GetEquals()),
			Contains: a.GetContains(),
		})
	}
	out.CancelWithin = duration(m.GetCancelWithin())
	if r := m.GetReadBack(); r != nil {
		out.ReadBack = exporter.ReadBack{
			Sums: r.GetSums(), Lag: duration(r.GetLag()), Granularity: duration(r.GetGranularity()), Evidence: strs(r.GetEvidence()),
		}
	}
	if w := m.GetWebhook(); w != nil {
		out.Webhook = &exporter.WebhookSignature{
			Scheme: w.GetScheme(), Header: w.GetHeader(), Secret: w.GetSecret(), Tolerance: duration(w.GetTolerance()),
		}
	}
	out.Records, out.Every = recordsValue(m.GetRecords()), duration(m.GetEvery())
	return out, nil
}

func correctionMessage(c exporter.CorrectionMode) CorrectionMode {
	switch c {
	case exporter.CorrectNone:
		return CorrectionMode_CORRECTION_MODE_NONE
	case exporter.CorrectCancel:
		return CorrectionMode_CORRECTION_MODE_CANCEL
	case exporter.CorrectNegative:
		return CorrectionMode_CORRECTION_MODE_NEGATIVE
	case exporter.CorrectTotal:
		return CorrectionMode_CORRECTION_MODE_REPLACE_TOTAL
	}
	return CorrectionMode_CORRECTION_MODE_UNSPECIFIED
}

func correctionValue(c CorrectionMode) (exporter.CorrectionMode, bool) {
	switch c {
	case CorrectionMode_CORRECTION_MODE_UNSPECIFIED:
		return "", true
	case CorrectionMode_CORRECTION_MODE_NONE:
		return exporter.CorrectNone, true
	case CorrectionMode_CORRECTION_MODE_CANCEL:
		return exporter.CorrectCancel, true
	case CorrectionMode_CORRECTION_MODE_NEGATIVE:
		return exporter.CorrectNegative, true
	case CorrectionMode_CORRECTION_MODE_REPLACE_TOTAL:
		return exporter.CorrectTotal, true
	}
	return "", false
}

func classMessage(c exporter.AnswerClass) AnswerClass {
	switch c {
	case exporter.AnswerDuplicate:
		return AnswerClass_ANSWER_CLASS_DUPLICATE
	case exporter.AnswerRefused:
		return AnswerClass_ANSWER_CLASS_REFUSED
	case exporter.AnswerMendable:
		return AnswerClass_ANSWER_CLASS_MENDABLE
	case exporter.AnswerAccepted:
		return AnswerClass_ANSWER_CLASS_ACCEPTED
	case exporter.AnswerAgain:
		return AnswerClass_ANSWER_CLASS_AGAIN
	}
	return AnswerClass_ANSWER_CLASS_UNSPECIFIED
}

func classValue(c AnswerClass) (exporter.AnswerClass, bool) {
	switch c {
	case AnswerClass_ANSWER_CLASS_UNSPECIFIED:
		return "", true
	case AnswerClass_ANSWER_CLASS_DUPLICATE:
		return exporter.AnswerDuplicate, true
	case AnswerClass_ANSWER_CLASS_REFUSED:
		return exporter.AnswerRefused, true
	case AnswerClass_ANSWER_CLASS_MENDABLE:
		return exporter.AnswerMendable, true
	case AnswerClass_ANSWER_CLASS_ACCEPTED:
		return exporter.AnswerAccepted, true
	case AnswerClass_ANSWER_CLASS_AGAIN:
		return exporter.AnswerAgain, true
	}
	return "", false
}
