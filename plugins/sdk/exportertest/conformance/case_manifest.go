package conformance

import (
	"bytes"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
	wirev1 "github.com/fencepost/fencepost/plugins/sdk/wire/v1"
)

func manifestCases() []Case {
	return []Case{
		{"manifest/sane", "a manifest names the exporter, keeps within the contract's bounds and says nothing that contradicts itself", manifestSane},
		{"manifest/stable", "Describe answers the same bytes before and after Configure, again, and elsewhere at another time", manifestStable},
		{"manifest/answers", "the patterns of the manifest recognise the provider's duplicate and refusals, and no success", manifestAnswers},
	}
}

var (
	namePattern    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	versionPattern = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+`)
	hostPattern    = regexp.MustCompile(`^(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]+)?$`)
	headerPattern  = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

func manifestSane(t *trial) {
	m := t.suite.manifest
	check := func(ok bool, what string) {
		if !ok {
			t.failf("the manifest: %s", what)
		}
	}
	check(namePattern.MatchString(m.Name), "name: lower-case letters, digits and dashes")
	check(versionPattern.MatchString(m.Version), "version: three numbers, as in 1.0.0")
	check(m.MaxBatch >= 1 && m.MaxBatch <= wirev1.MaxItems, "max_batch: 1 to 500")
	check(m.Rate >= 0 && m.Concurrency >= 0, "rate and concurrency: not negative")
	check(m.IdentifierMaxLength >= 1 || m.Records != nil, "identifier_max_length: at least 1")
	check(m.IdentifierHorizon >= 0 && m.WindowPast >= 0 && m.WindowFuture >= 0 && m.Every >= 0, "times: not negative")
	check(m.Values.SignificantDigits >= 0 && m.Values.MaxDecimals >= -1, "values: digits from 0, decimals from -1")
	check((m.CancelWithin > 0) == (m.Corrections == exporter.CorrectCancel), "cancel_within: of corrections by cancel, and only of them")
	check(m.Corrections != exporter.CorrectNegative || m.Values.Negative, "values: corrections by negative events need negative values")
	known := []capability.Name{
		capability.HTTPName, capability.LogName, capability.ClockName, capability.RandomName, capability.SQLName, capability.AppendName,
	}
	for i, c := range m.Capabilities {
		check(slices.Contains(known, c), "capabilities: one that exists, not "+string(c))
		check(!slices.Contains(m.Capabilities[:i], c), "capabilities: each once")
	}
	check(len(m.Hosts) == 0 || slices.Contains(m.Capabilities, capability.HTTPName), "hosts: need the capability http")
	for _, h := range m.Hosts {
		check(hostPattern.MatchString(h), "hosts: names without scheme and path")
	}
	for _, s := range m.Secrets {
		check(s.Name != "" && (s.Scheme != exporter.SecretHeader || headerPattern.MatchString(s.Header)), "secrets: a name, and a header unless a scheme says more")
	}
	for _, p := range m.Answers {
		checkPattern(check, p)
	}
}

// checkPattern holds what a host refuses a pattern for.
func checkPattern(check func(bool, string), p exporter.AnswerPattern) {
	bare := len(p.Equals) == 0 && p.Contains == ""
	definite := p.Status >= 200 && p.Status < 300 || p.Status >= 400 && p.Status < 500 && p.Status != 408 && p.Status != 429
	redirect := bare && p.Status >= 300 && p.Status < 400
	check(definite || redirect, "answers: a status of 2xx or 4xx, neither 408 nor 429, because the others say nothing definite")
	check(len(p.Equals) == 0 || p.Contains == "", "answers: not both equals and contains")
	check(!bare || p.In != "" || p.Class == exporter.AnswerMendable || p.Class == exporter.AnswerAgain,
		"answers: a status alone is mendable or again; a duplicate and a refusal need equals or contains")
	check(p.Path == "" || strings.HasPrefix(p.Path, "/"), "answers: path is a JSON pointer")
	if p.In == "" {
		check(p.Class != exporter.AnswerDuplicate || strings.Contains(p.Contains, "{identifier}"), "answers: a duplicate names our identifier, by contains with {identifier}")
	}
}

func manifestStable(t *trial) {
	describe := func(s *session) []byte {
		answer, err := s.call(wirev1.MethodDescribe, nil)
		if err != nil {
			t.fatalf("Describe failed: %v", err)
		}
		return answer
	}
	first := t.open(1, false)
	want := describe(first)
	if !bytes.Equal(want, describe(first)) {
		t.failf("a second Describe answers otherwise")
	}
	if !bytes.Equal(want, describe(t.open(77, false))) {
		t.failf("another instance, at another time, describes itself otherwise")
	}
	used := t.session()
	used.deliver(t.says(Accept), t.items(2)...)
	if !bytes.Equal(want, describe(used)) {
		t.failf("after Configure and Deliver, Describe answers otherwise")
	}
	if requests, _ := first.double.take(); len(requests) > 0 {
		t.failf("Describe sent %d requests", len(requests))
	}
}

// manifestAnswers compares what the exporter will say of an answer with what
// the host will read from it: a claim without that evidence is not believed.
func manifestAnswers(t *trial) {
	t.overHTTP()
	m := t.suite.manifest
	items := t.items(1)
	d := t.session().deliver(t.says(Accept), items...)
	if len(d.requests) == 0 {
		t.fatalf("nothing is sent for a plain item")
	}
	if m.Records != nil {
		t.skipf("the answers of records are read inside lists")
	}
	told := items[0].Identifier
	for answer, want := range map[Answer]exporter.AnswerClass{
		Duplicate: exporter.AnswerDuplicate, Refuse: exporter.AnswerRefused, Mend: exporter.AnswerMendable,
	} {
		r, ok := t.provider().Answer(answer, d.requests[0], items)
		if !ok {
			continue
		}
		if class, ok := recognised(&m, &r, told); !ok || class != want {
			t.failf("the patterns read the answer %q as %q", answer, class)
		}
		if class, ok := recognised(&m, &r, "fencepost_other"); ok && class == exporter.AnswerDuplicate {
			t.failf("the patterns take a duplicate of one identifier for that of another")
		}
	}
	if r, _ := t.provider().Answer(Accept, d.requests[0], items); len(m.Answers) > 0 {
		if class, ok := recognised(&m, &r, told); ok && class != exporter.AnswerAccepted {
			t.failf("the patterns read a success as %q", class)
		}
	}
}

func configureCases() []Case {
	return []Case{
		{"configure/nonsense", "Configure refuses what it cannot serve, with tag invalid and the name of the field, and sends nothing", configureNonsense},
		{"configure/base-url", "requests go to the configured base_url, and without one to a host of the manifest", configureBaseURL},
		{"configure/first", "Deliver before Configure is an Error, and sends nothing", configureFirst},
	}
}

func configureNonsense(t *trial) {
	good := t.provider().Configuration
	change := func(f func(*exporter.Configuration)) exporter.Configuration {
		c := good
		f(&c)
		return c
	}
	bad := append([]exporter.Configuration{
		change(func(c *exporter.Configuration) { c.Mode = "production" }),
		change(func(c *exporter.Configuration) { c.Mode = "" }),
		change(func(c *exporter.Configuration) { c.BaseURL = "http://provider.example" }),
		change(func(c *exporter.Configuration) { c.BaseURL = "provider.example" }),
		change(func(c *exporter.Configuration) { c.BaseURL = "https://" }),
		change(func(c *exporter.Configuration) { c.BaseURL = "https://user:word@provider.example" }),
		change(func(c *exporter.Configuration) { c.Settings = []byte(`[1]`) }),
		change(func(c *exporter.Configuration) { c.Settings = []byte(`{"`) }),
		change(func(c *exporter.Configuration) { c.Settings = []byte(`{"no_such_setting_at_all":1}`) }),
	}, t.provider().Nonsense...)
	s := t.open(1, false)
	for _, c := range bad {
		_, err := s.call(wirev1.MethodConfigure, wirev1.EncodeConfiguration(c))
		e, _ := err.(*sdk.Error) //nolint:errorlint // call returns it so
		switch what := describeConfiguration(c); {
		case err == nil:
			t.failf("Configure takes %s", what)
		case e.Tag != sdk.TagInvalid:
			t.failf("Configure refuses %s with tag %s, want invalid", what, e.Tag)
		case e.Field == "":
			t.failf("Configure refuses %s without naming the field", what)
		}
	}
	if requests, _ := s.double.take(); len(requests) > 0 {
		t.failf("Configure sent %d requests", len(requests))
	}
}

func describeConfiguration(c exporter.Configuration) string {
	return "mode " + c.Mode + ", account " + c.Account + ", base_url " + c.BaseURL + ", settings " + string(c.Settings)
}

func configureBaseURL(t *trial) {
	t.overHTTP()
	for _, base := range []string{"", "https://provider.example:8443/base"} {
		c := t.provider().Configuration
		c.BaseURL = base
		s := t.open(1, false)
		if _, err := s.call(wirev1.MethodConfigure, wirev1.EncodeConfiguration(c)); err != nil {
			if base == "" {
				continue // this provider has no address of its own
			}
			t.fatalf("Configure refuses base_url %s: %v", base, err)
		}
		d := s.deliver(t.says(Accept), t.items(2)...)
		if len(d.requests) == 0 {
			t.failf("with base_url %q nothing is sent", base)
		}
		for _, r := range d.requests {
			u, err := url.Parse(r.URL)
			switch {
			case err != nil || u.Scheme != "https" || u.User != nil:
				t.failf("with base_url %q a request goes to %q", base, r.URL)
			case base != "" && r.URL != base && !strings.HasPrefix(r.URL, base+"/"):
				t.failf("with base_url %q a request goes to %q", base, r.URL)
			case base == "" && !slices.Contains(t.suite.manifest.Hosts, u.Host):
				t.failf("a request goes to %q, which is none of the manifest's hosts", u.Host)
			}
		}
	}
}

func configureFirst(t *trial) {
	s := t.open(1, false)
	s.double.play(t.says(Accept))
	_, err := s.call(wirev1.MethodDeliver, wirev1.EncodeDelivery(exporter.Delivery{Items: t.items(1)}))
	e, _ := err.(*sdk.Error) //nolint:errorlint // call returns it so
	if err == nil || e.Tag == sdk.TagUnavailable {
		t.failf("an exporter that was not configured answers %v", err)
	}
	if requests, _ := s.double.take(); len(requests) > 0 {
		t.failf("an exporter that was not configured sent %d requests", len(requests))
	}
}
