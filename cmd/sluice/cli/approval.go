package cli

import (
	"context"
	"io"
	"iter"
	"uuid"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
)

// approvalVerb is a verb whose argument is the id of an approval.
func (p *program) approvalVerb(c *cobra.Command, run func(s *session, id string) error) *cobra.Command {
	s := p.session(c)
	s.operator = true
	c.Args = argument("ID")
	c.ValidArgsFunction = s.completeAt(0, approvalIDs)
	return s.verb(func(s *session) error { return run(s, s.args[0]) })
}

func (p *program) approvalList() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List what operators ask others to approve",
		Long:    "List what operators ask others to approve, in the order in which it was asked\nfor, until it expires.",
		Example: "  sluice approval list",
		Args:    noArguments,
	}
	limitFlag(c, &limit, "approvals")
	return p.operatorVerb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		approvals, err := collect(api.ListApprovals(ctx), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Approvals []*client.Approval `json:"approvals"`
		}{approvals}, func(w io.Writer) error {
			rows := make([][]string, len(approvals))
			for i, a := range approvals {
				rows[i] = []string{a.ID, a.Operation, a.Resource, standing(a), date(a.ExpiresAt)}
			}
			return table(w, []string{"ID", "OPERATION", "RESOURCE", "STATE", "EXPIRES"}, rows)
		})
	})
}

func (p *program) approvalGet() *cobra.Command {
	return p.approvalVerb(&cobra.Command{
		Use:     "get ID",
		Short:   "Show an approval",
		Long:    "Show what an operator asks others to approve.",
		Example: "  sluice approval get 01920c5e-0000-7000-8000-000000000000",
	}, func(s *session, id string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showApproval(api.GetApproval(ctx, id))
	})
}

func (p *program) approvalApprove() *cobra.Command {
	var confirm confirmation
	c := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve what another operator asks for",
		Long: `Approve what another operator asks for. Who asked can then do it, once, by
repeating the verb with --approval ID. Look at it first ("sluice approval get"),
and ask why.`,
		Example: "  sluice approval approve 01920c5e-0000-7000-8000-000000000000",
	}
	confirm.flag(c)
	return p.approvalVerb(c, func(s *session, id string) error {
		if err := confirm.ask(s, "Who asked for %s can then do it.", id); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showApproval(api.Approve(ctx, id))
	})
}

func (s *session) showApproval(a *client.ApprovalOutput, err error) error {
	if err != nil {
		return err
	}
	return s.show(a, func(w io.Writer) error {
		return details(w, field{"Id", a.ID}, field{"Operation", a.Operation}, field{"Resource", a.Resource}, field{"State", standing(&a.Approval)},
			field{"Requested by", a.RequestedBy}, field{"Approved by", a.ApprovedBy}, field{"Created", date(a.CreatedAt)}, field{"Expires", date(a.ExpiresAt)})
	})
}

// standing is how far an approval has got.
func standing(a *client.Approval) string {
	switch {
	case a.Used:
		return "used"
	case a.ApprovedBy != "":
		return "approved"
	}
	return "waits"
}

func approvalIDs(ctx context.Context, c *client.Client) iter.Seq[cobra.Completion] {
	return func(yield func(cobra.Completion) bool) {
		for a, err := range c.ListApprovals(ctx) {
			if err != nil {
				return
			}
			if !a.Used && !yield(cobra.CompletionWithDesc(a.ID, a.Operation+" "+a.Resource)) {
				return
			}
		}
	}
}

// approvalFlag adds --approval to a verb that can take two operators.
func (s *session) approvalFlag() {
	s.cmd.Flags().StringVar(&s.approval, "approval", "", "`ID` of what another operator approved, when the service wants two")
	s.completeFlag("approval", approvalIDs)
}

// checkApproval checks the flag, which becomes a header.
func (s *session) checkApproval() error {
	if _, err := uuid.Parse(s.approval); s.approval != "" && err != nil {
		return usage(s.cmd, "--approval must be the id of an approval")
	}
	return nil
}
