package client

// Charge is the part of every answer that says what it cost.
type Charge struct {
	Cost      float64 `json:"cost"`       // credits, exact to a millionth
	RequestID string  `json:"request_id"` // names the call in the service's journal
}

// Meta is the part of the answer of every operation with a key.
type Meta struct {
	Charge
	Protection Protection `json:"protection"` // of the key that was used
}
