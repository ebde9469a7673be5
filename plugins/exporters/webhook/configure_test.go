package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/plugins/exporters/webhook"
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
		"right":        {"https://example.com/usage?tenant=1", ``, ""},
		"empty":        {"https://example.com", `{}`, ""},
		"no address":   {"", ``, "base_url"},
		"plain http":   {"http://example.com", ``, "base_url"},
		"with a user":  {"https://a:b@example.com", ``, "base_url"},
		"any settings": {"https://example.com", `{"type":"x"}`, "settings"},
	} {
		e := webhook.New(capability.Host{HTTP: nothing{}})
		err := e.Configure(t.Context(), exporter.Configuration{Mode: "test", BaseURL: tt.base, Settings: json.RawMessage(tt.settings)})
		var refused *sdk.Error
		switch {
		case tt.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.field != "" && (!errors.As(err, &refused) || refused.Tag != sdk.TagInvalid || refused.Field != tt.field):
			t.Errorf("%s: %v, want field %s", name, err, tt.field)
		}
	}
	if err := webhook.New(capability.Host{}).Configure(t.Context(), exporter.Configuration{}); sdk.TagOf(err) != sdk.TagUnsupported {
		t.Errorf("without http: %v", err)
	}
}
