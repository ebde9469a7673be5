package awsmarketplace

import (
	"net/http"
	"slices"
	"time"

	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

// Version of this exporter.
const Version = "1.0.0"

// SecretKey is the name of the secret that signs: an access key of AWS,
// "ACCESS_KEY_ID:SECRET_ACCESS_KEY" or with ":SESSION_TOKEN" after it.
const SecretKey = "access_key"

const (
	keyDimension = "dimension"

	defaultRegion = "us-east-1"
	defaultHost   = "metering.marketplace.us-east-1.amazonaws.com"

	// recordsMax is how many records one request may have.
	recordsMax = 25
	// quantityMax is the largest int32.
	quantityMax = 1<<31 - 1

	results     = "/Results"
	unprocessed = "/UnprocessedRecords"
)

// tooLate is below the six hours after which AWS takes no record. An operator who
// knows a shorter time sets the exporter's horizon.
const tooLate = 5*time.Hour + 45*time.Minute

// Exceptions of the service, the last part of __type.
const (
	invalidCustomer = "InvalidCustomerIdentifierException"
	throttling      = "ThrottlingException"
)

// Refusals, after which nothing of the request was taken. What is wrong with the
// product, a dimension or a customer's id a person can mend while the hour is not
// over for AWS; a record that is too old nobody can.
var (
	mendable = []string{invalidCustomer, "InvalidProductCodeException", "InvalidUsageDimensionException", "DisabledApiException"}
	final    = []string{"TimestampOutOfBoundsException", "InvalidTagException", "InvalidUsageAllocationsException"}
)

func manifest() exporter.Manifest {
	m := exporter.Manifest{
		Name: "aws-marketplace", Version: Version,
		IdentifierMaxLength: 255, // AWS is never told one
		IdentifierHorizon:   tooLate,
		WindowPast:          tooLate,
		// Whole numbers below a thousand millions: what is beyond a record's
		// int32, or behind the point, goes into the next window.
		Values:       exporter.ValueDomain{SignificantDigits: 9, MaxDecimals: 0, Zero: true},
		MaxBatch:     100,
		Rate:         10,
		Concurrency:  2,
		Corrections:  exporter.CorrectNone,
		Capabilities: []capability.Name{capability.HTTPName},
		Hosts:        []string{defaultHost},
		Secrets:      []exporter.Secret{{Name: SecretKey, Scheme: exporter.SecretAWS}},
		MappingKeys:  []string{keyDimension},
		Every:        time.Hour,
		Records: &exporter.Records{
			Path: "/UsageRecords",
			Key: []exporter.RecordKey{
				{Field: "customer", Path: "/CustomerAWSAccountId"},
				{Field: "mapping." + keyDimension, Path: "/Dimension"},
				{Field: "timestamp", Path: "/Timestamp"},
				{Field: "value", Path: "/Quantity"},
			},
			Answers: []exporter.RecordAnswers{{Path: results, Record: "/UsageRecord"}, {Path: unprocessed}},
		},
		Answers: []exporter.AnswerPattern{
			{Class: exporter.AnswerAccepted, Status: http.StatusOK, In: results, Path: "/Status", Equals: []string{"Success"}},
			{Class: exporter.AnswerRefused, Status: http.StatusOK, In: results, Path: "/Status", Equals: []string{"CustomerNotSubscribed", "DuplicateRecord"}},
			{Class: exporter.AnswerAgain, Status: http.StatusOK, In: unprocessed},
		},
	}
	for _, name := range mendable {
		m.Answers = append(m.Answers, refusal(exporter.AnswerMendable, name))
	}
	for _, name := range final {
		m.Answers = append(m.Answers, refusal(exporter.AnswerRefused, name))
	}
	// Of several records an exception speaks of one, and aborts the request as a
	// whole: nothing of it was taken (boto/boto3#1995).
	for _, name := range slices.Concat([]string{throttling}, mendable, final) {
		m.Answers = append(m.Answers, refusal(exporter.AnswerAgain, name))
	}
	return m
}

// refusal recognises an exception by its name, which a namespace may precede.
func refusal(class exporter.AnswerClass, name string) exporter.AnswerPattern {
	return exporter.AnswerPattern{Class: class, Status: http.StatusBadRequest, Path: "/__type", Contains: name}
}
