package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/sluice-kms/sluice/kms"
)

func versionRoutes() []Route {
	on := func(name, verb string, op kms.Op, summary, description string) Route {
		return Route{Name: name, Group: "Keys", Method: http.MethodPost, Path: "/v1/keys/{key}/versions/{version}/" + verb, Op: op,
			Errors: moveErrors, Summary: summary, Description: description}
	}
	return []Route{
		change(on("enable-key-version", "enable", kms.OpEnableVersion, "Switch a key version on", "An enabled version stays as it is."),
			onVersion((*kms.Service).EnableVersion), replayKey),
		change(on("disable-key-version", "disable", kms.OpDisableVersion, "Switch a key version off",
			"What it signed or encrypted can be neither verified nor decrypted until it is enabled."),
			onVersion((*kms.Service).DisableVersion), replayKey),
		change(on("schedule-version-destruction", "schedule-destruction", kms.OpDestroyVersion, "Schedule a key version's destruction",
			"Disables the version at once and erases its material on the date, unless that is cancelled before. "+
				"The primary version cannot go: rotate the key first."), scheduleDestruction, replayKey),
		change(on("cancel-version-destruction", "cancel-destruction", kms.OpCancelDestroy, "Cancel a key version's destruction",
			"The version stays disabled until it is enabled."), onVersion((*kms.Service).CancelVersionDestruction), replayKey),
	}
}

// version is the number of the path's version. What is not the one spelling
// of a number names no version, which 0 stands for: whether the key exists
// decides first.
func (c *call) version() uint32 {
	text := c.object(1)
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0
	}
	return uint32(n)
}

// onVersion makes the handler of a route that does one thing to a version.
func onVersion(verb func(*kms.Service, context.Context, *kms.Ticket, string, uint32) (*kms.Key, error)) func(*call, *Empty) (*KeyResponse, error) {
	return func(c *call, _ *Empty) (*KeyResponse, error) {
		return c.keyOr(verb(c.service, c.context, &c.ticket, c.object(0), c.version()))
	}
}

func scheduleDestruction(c *call, in *ScheduleDestructionRequest) (*KeyResponse, error) {
	return c.keyOr(c.service.ScheduleVersionDestruction(c.context, &c.ticket, c.object(0), c.version(), daysOr(in.Days)))
}

// daysOr is the length of the window before an end.
func daysOr(given *int) int {
	if given == nil {
		return kms.DefaultDeletionDays
	}
	return *given
}
