package state

import (
	"crypto/sha1" //nolint:gosec // the name that Redis gives a script
	_ "embed"     // the scripts
	"encoding/hex"
)

// ScriptVersion names the set of scripts of this release; all sets of one layout
// keep the same meaning.
const ScriptVersion = "1"

var (
	//go:embed lib.lua
	libText string
	//go:embed track.lua
	trackText string
	//go:embed acknowledge.lua
	acknowledgeText string
	//go:embed confirm.lua
	confirmText string
	//go:embed ask.lua
	askText string
	//go:embed apply.lua
	applyText string
	//go:embed settle.lua
	settleText string
	//go:embed gc.lua
	gcText string
	//go:embed reset.lua
	resetText string
	//go:embed load.lua
	loadText string
)

type script struct{ text, sha string }

type scripts struct {
	track, acknowledge, confirm, ask, apply, settle, gc, reset, load script
}

func newScript(text string) script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return script{text, hex.EncodeToString(sum[:])}
}

func embedded() scripts {
	with := func(text string) script { return newScript(libText + text) }
	return scripts{
		track: with(trackText), acknowledge: with(acknowledgeText), confirm: with(confirmText), ask: with(askText),
		apply: with(applyText), settle: with(settleText), gc: with(gcText), reset: with(resetText), load: with(loadText),
	}
}
