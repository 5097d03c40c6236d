package keystore

import "uuid"

// The parameters and rows of routes over providers.
type (
	RouteParams struct {
		Tenant uuid.UUID
		Name   string
	}
	ListRoutesParams struct {
		Tenant uuid.UUID
		After  string
		Limit  int
	}
	PutRouteParams struct {
		Route RouteRecord
		New   bool
	}
	DeleteRouteParams struct {
		Was int64 // the revision of the route's row
		End RouteEndRecord
	}
	PutRouteHealthParams struct{ Health RouteHealthRecord }
)

// RouteRecord is a route as it is written.
type RouteRecord struct {
	Tenant   uuid.UUID
	Name     string
	Document []byte
	Revision uint64
	Code     Code
}

// RouteRow is a route as it was found.
type RouteRow struct {
	Name     Text
	Document Bytes
	Revision Integer
	Code     CodeRow
}

// RouteEndRecord is the last end of a route as it is written. It stays when the
// route is made anew.
type RouteEndRecord struct {
	Tenant   uuid.UUID
	Name     string
	Revision uint64
	Code     Code
}

// RouteEndRow is the last end of a route as it was found.
type RouteEndRow struct {
	Revision Integer
	Code     CodeRow
}

// RouteHealthRecord is a route's health as it is written; Revision 1 is the
// first one.
type RouteHealthRecord struct {
	Tenant   uuid.UUID
	Name     string
	Route    uuid.UUID
	Document []byte
	Revision uint64
	Code     Code
}

// RouteHealthRow is a route's health as it was found.
type RouteHealthRow struct {
	Route    Bytes
	Document Bytes
	Revision Integer
	Code     CodeRow
}
