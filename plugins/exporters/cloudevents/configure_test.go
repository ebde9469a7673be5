package cloudevents_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/cloudevents"
	"github.com/fencepost/fencepost/plugins/sdk"
	"github.com/fencepost/fencepost/plugins/sdk/capability"
	"github.com/fencepost/fencepost/plugins/sdk/exporter"
)

type nothing struct{}

func (nothing) Send(context.Context, []capability.Request) ([]capability.Response, error) {
	return nil, errors.New("nothing is sent")
}

// What an operator can get wrong is named by its field.
func TestConfigure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ base, settings, field string }{
		"openmeter":    {"https://openmeter.cloud", `{"shape":"openmeter","source":"shop"}`, ""},
		"lago":         {"https://api.getlago.com/", `{"shape":"lago"}`, ""},
		"no address":   {"", `{"shape":"lago"}`, "base_url"},
		"plain http":   {"http://openmeter.cloud", `{"shape":"lago"}`, "base_url"},
		"with a user":  {"https://a:b@openmeter.cloud", `{"shape":"lago"}`, "base_url"},
		"no settings":  {"https://openmeter.cloud", ``, "settings"},
		"no shape":     {"https://openmeter.cloud", `{}`, "settings.shape"},
		"other shape":  {"https://openmeter.cloud", `{"shape":"kafka"}`, "settings.shape"},
		"unknown key":  {"https://openmeter.cloud", `{"shape":"lago","batch":3}`, "settings"},
		"lago, source": {"https://openmeter.cloud", `{"shape":"lago","source":"x"}`, "settings.source"},
	} {
		e := cloudevents.New(capability.Host{HTTP: nothing{}})
		err := e.Configure(t.Context(), exporter.Configuration{Mode: "test", BaseURL: tt.base, Settings: json.RawMessage(tt.settings)})
		var refused *sdk.Error
		switch {
		case tt.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.field != "" && (!errors.As(err, &refused) || refused.Tag != sdk.TagInvalid || refused.Field != tt.field || strings.Contains(err.Error(), "a:b")):
			t.Errorf("%s: %v, want field %s", name, err, tt.field)
		}
	}
	if err := cloudevents.New(capability.Host{}).Configure(t.Context(), exporter.Configuration{}); sdk.TagOf(err) != sdk.TagUnsupported {
		t.Errorf("without http: %v", err)
	}
}
