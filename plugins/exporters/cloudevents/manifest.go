package cloudevents

import (
	"net/http"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Version of this exporter.
const Version = "1.0.0"

// SecretAPIKey is the name of the secret that authorizes requests.
const SecretAPIKey = "api_key"

// Keys of a feature's mapping.
const (
	keyType  = "event_type"
	keyValue = "value_key"
)

// batchMax is what Lago takes in one request unless its operator raised it.
const batchMax = 100

const (
	codeValidation = "validation_errors"   // of Lago: something of the batch is not valid
	codeExists     = "value_already_exist" // of Lago: the transaction_id is taken
	lagoFirstError = "/error_details/0/transaction_id/0"
)

func manifest() exporter.Manifest {
	return exporter.Manifest{
		Name: "cloudevents", Version: Version,
		IdentifierMaxLength: 255,
		// Lago knows a transaction_id for ever; how long OpenMeter knows an id
		// is its operator's setting, and the horizon of the configuration must
		// not be longer.
		IdentifierHorizon: 23 * time.Hour,
		Values:            exporter.ValueDomain{MaxDecimals: -1, Negative: true, Zero: true},
		MaxBatch:          batchMax,
		Concurrency:       4,
		Corrections:       exporter.CorrectNegative,
		Capabilities:      []capability.Name{capability.HTTPName},
		Secrets:           []exporter.Secret{{Name: SecretAPIKey, Header: "Authorization", Prefix: "Bearer "}},
		MappingKeys:       []string{keyType},
		Answers: []exporter.AnswerPattern{
			// An event that is read back and names our identifier is there.
			{Class: exporter.AnswerDuplicate, Status: http.StatusOK, Path: "/event/transaction_id", Contains: "{identifier}"},
			// Lago takes a batch whole or not at all. A duplicate among its
			// events is no refusal: reading it back tells whose it is.
			{Class: exporter.AnswerAgain, Status: http.StatusUnprocessableEntity, Path: lagoFirstError, Equals: []string{codeExists}},
			{Class: exporter.AnswerRefused, Status: http.StatusUnprocessableEntity, Path: "/code", Equals: []string{codeValidation}},
			{Class: exporter.AnswerAgain, Status: http.StatusUnprocessableEntity, Path: "/code", Equals: []string{codeValidation}},
			// OpenMeter reads a request as a whole before it takes its first
			// event, and only then answers 400. What fails later is a 5xx.
			{Class: exporter.AnswerRefused, Status: http.StatusBadRequest, Path: "/status", Equals: []string{"400"}},
			{Class: exporter.AnswerAgain, Status: http.StatusBadRequest, Path: "/status", Equals: []string{"400"}},
		},
	}
}
