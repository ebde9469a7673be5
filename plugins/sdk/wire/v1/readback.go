package wirev1

import (
	"fmt"

	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// EncodeProbe encodes a ProbeRequest.
func EncodeProbe(p exporter.Probe) []byte {
	m := &ProbeRequest{Deadline: deadline(p.Deadline), Questions: make([]*ProbeQuestion, len(p.Questions))}
	for i, q := range p.Questions {
		m.Questions[i] = &ProbeQuestion{
			Customer: q.Customer, Feature: q.Feature, Mapping: mappingMessages(q.Mapping),
			From: q.From.UnixMicro(), To: q.To.UnixMicro(),
		}
	}
	return encode(m)
}

// DecodeProbe decodes a ProbeRequest.
func DecodeProbe(data []byte) (exporter.Probe, error) {
	var m ProbeRequest
	if err := decode("ProbeRequest", data, boundsProbe, &m); err != nil {
		return exporter.Probe{}, err
	}
	var out exporter.Probe
	if m.GetDeadline() != 0 {
		out.Deadline = instant(m.GetDeadline())
	}
	for _, q := range m.GetQuestions() {
		out.Questions = append(out.Questions, exporter.ProbeQuestion{
			Customer: q.GetCustomer(), Feature: q.GetFeature(), Mapping: mappingValue(q.GetMapping()),
			From: instant(q.GetFrom()), To: instant(q.GetTo()),
		})
	}
	return out, nil
}

// EncodeProbeAnswers encodes a ProbeAnswer.
func EncodeProbeAnswers(answers []exporter.ProbeAnswer) []byte {
	m := &ProbeAnswer{Sums: make([]*ProbeSum, len(answers))}
	for i, a := range answers {
		m.Sums[i] = &ProbeSum{Meter: text(a.Meter), Code: text(a.Code), Message: text(a.Message)}
		if a.Sum != nil {
			m.Sums[i].Sum = text(*a.Sum)
		}
	}
	return encode(m)
}

// DecodeProbeAnswers decodes a ProbeAnswer to n questions. Another number of
// answers than n is malformed: nobody can tell whose they are.
func DecodeProbeAnswers(data []byte, n int) ([]exporter.ProbeAnswer, error) {
	var m ProbeAnswer
	if err := decode("ProbeAnswer", data, boundsSums, &m); err != nil {
		return nil, err
	}
	if len(m.GetSums()) != n {
		return nil, fmt.Errorf("decode ProbeAnswer: %w: %d sums for %d questions", ErrMalformed, len(m.GetSums()), n)
	}
	out := make([]exporter.ProbeAnswer, n)
	for i, s := range m.GetSums() {
		out[i] = exporter.ProbeAnswer{Meter: text(s.GetMeter()), Code: text(s.GetCode()), Message: text(s.GetMessage())}
		if sum := text(s.GetSum()); sum != "" {
			out[i].Sum = &sum
		}
	}
	return out, nil
}

// EncodeWebhook encodes a WebhookRequest.
func EncodeWebhook(w exporter.Webhook) []byte {
	return encode(&WebhookRequest{Body: w.Body, ReceivedAt: w.ReceivedAt.UnixMicro()})
}

// DecodeWebhook decodes a WebhookRequest.
func DecodeWebhook(data []byte) (exporter.Webhook, error) {
	var m WebhookRequest
	if err := decode("WebhookRequest", data, boundsNone, &m); err != nil {
		return exporter.Webhook{}, err
	}
	return exporter.Webhook{Body: blob(m.GetBody()), ReceivedAt: instant(m.GetReceivedAt())}, nil
}

// EncodeWebhookAnswer encodes a WebhookAnswer. Evidence beyond [MaxEvidence] is
// left out and counted, so that one large message is not lost whole.
func EncodeWebhookAnswer(a exporter.WebhookAnswer) []byte {
	counted := max(a.Counted, len(a.Evidence))
	if len(a.Evidence) <= MaxEvidence {
		counted = a.Counted
	}
	m := &WebhookAnswer{Id: text(a.ID), Counted: int64(counted), Code: text(a.Code)}
	for _, e := range a.Evidence[:min(len(a.Evidence), MaxEvidence)] {
		m.Evidence = append(m.Evidence, &Evidence{
			Identifier: text(e.Identifier), Refused: e.Refused, Code: text(e.Code), Message: text(e.Message),
		})
	}
	return encode(m)
}

// DecodeWebhookAnswer decodes a WebhookAnswer. A negative count is none.
func DecodeWebhookAnswer(data []byte) (exporter.WebhookAnswer, error) {
	var m WebhookAnswer
	if err := decode("WebhookAnswer", data, boundsWebhook, &m); err != nil {
		return exporter.WebhookAnswer{}, err
	}
	out := exporter.WebhookAnswer{ID: text(m.GetId()), Counted: max(count(m.GetCounted()), 0), Code: text(m.GetCode())}
	for _, e := range m.GetEvidence() {
		out.Evidence = append(out.Evidence, exporter.Evidence{
			Identifier: text(e.GetIdentifier()), Refused: e.GetRefused(), Code: text(e.GetCode()), Message: text(e.GetMessage()),
		})
	}
	return out, nil
}
