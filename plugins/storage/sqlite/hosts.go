package sqlite

import (
	"github.com/fencepost/fencepost/plugins/sdk/storage"
)

// incarnation says which store this is and how far it has come. One file has
// one history: there is no timeline.
func incarnation(c *conn) (in storage.Incarnation, err error) {
	_, err = c.bind(qIncarnation).one(func(r *row) {
		in.System, in.Claims, in.Restores = r.text(), r.int(), r.int()
	})
	return in, err
}
