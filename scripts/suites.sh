# shellcheck shell=bash
# The tests that make test leaves to make plugins, for both scripts to source.
# shellcheck disable=SC2034 # of the scripts that source this
plugin_suites='^(TestCarriersConform|TestEvilExporters|TestReload(sLeakNothing|Modules(DuringACall)?)|TestSubprocessConformance|TestSQLConformance(Process)?|TestStorageOverSQL(Refused)?|TestTransactionEndsWithTheCall|TestStripeModuleConforms|TestSamples(Conform|DoTheSame|DescribeTheSame|OfTheRest)|TestDocumentedExamples)$'
