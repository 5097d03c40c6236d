package api

import (
	"time"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// WhyResponse tells what became of a request, and why it took as long as it
// did.
type WhyResponse struct {
	Request   uuid.UUID `json:"request" doc:"The request asked about"`
	Tenant    uuid.UUID `json:"tenant"`
	EndedAt   time.Time `json:"ended_at"`
	Operation kms.Op    `json:"operation"`
	Key       uuid.UUID `json:"key,omitzero" doc:"Absent: it acted on none"`
	Outcome   string    `json:"outcome" doc:"ok, or the code of the problem"`

	Summary string      `json:"summary" doc:"What took how long, in a sentence"`
	Reasons []WhyReason `json:"reasons" doc:"Why it was refused, and what it waited for, the longest first; the waits add up to queue_ms"`

	QueueMS    float64     `json:"queue_ms" doc:"The wait for a slot"`
	HSMMS      float64     `json:"hsm_ms" doc:"Slot time"`
	TotalMS    float64     `json:"total_ms" doc:"From its headers to the journal's acknowledgement"`
	EstimateMS float64     `json:"estimate_ms,omitzero" doc:"The wait that was expected; absent when a slot was free"`
	Node       kms.NodeID  `json:"node,omitzero" doc:"That ran it last; absent when none did"`
	Attempts   int         `json:"attempts,omitzero" doc:"Nodes tried"`
	Away       bool        `json:"away,omitzero" doc:"It ran on another node than the one preferred"`
	Aged       bool        `json:"aged,omitzero" doc:"It took the lane of those who have waited long"`
	ColdLoad   bool        `json:"cold_load,omitzero" doc:"The key had to be loaded first"`
	Class      kms.Class   `json:"class,omitzero" doc:"At the gate of the HSMs: HIGH, MID or LOW; absent when it did not come to it"`
	Urgency    kms.Urgency `json:"urgency"`

	Reserved      Cost   `json:"reserved" doc:"Its price in credits"`
	Charged       Cost   `json:"charged" doc:"What of that was charged"`
	PolicyVersion uint64 `json:"policy_version" doc:"Of the policy that decided"`
	Charge
}

// WhyReason is a reason with what it means.
type WhyReason struct {
	Code        string   `json:"code" example:"SHARE"`
	Unit        kms.Unit `json:"unit,omitzero" doc:"What the numbers count"`
	Limit       int64    `json:"limit,omitzero"`
	Need        int64    `json:"need,omitzero"`
	Have        int64    `json:"have,omitzero"`
	RetryMS     int64    `json:"retry_ms,omitzero" doc:"Milliseconds after which a retry could succeed; absent: of a wait, or it does not help"`
	WaitMS      float64  `json:"wait_ms,omitzero" doc:"Milliseconds waited for it; absent: it refused"`
	Share       float64  `json:"share,omitzero" doc:"Of the whole wait, 0 to 1"`
	Explanation string   `json:"explanation,omitzero" doc:"What happened, in plain English"`
	Advice      string   `json:"advice,omitzero" doc:"What can be done about it"`
}
