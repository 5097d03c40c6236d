package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-kms/sluice/client"
	"github.com/sluice-kms/sluice/kms"
)

func (p *program) keyCreate() *cobra.Command {
	var in client.CreateKeyInput
	var tags []string
	c := tries(&cobra.Command{
		Use:   "create --spec SPEC [NAME]",
		Short: "Create a key",
		Long: `Create a key with its first version. Without a NAME it is named "key-" and its id.

The material is made inside an HSM, where a token offers the spec, and never
leaves it. RSA keys take seconds.`,
		Example: `  sluice key create --spec SM2 payments/orders
  sluice key create --spec AES_256 backups --tag team=storage --deletion-protection
  sluice key create --spec RSA_3072 --usage ENCRYPT_DECRYPT mailbox`,
		Args: nameOrNone,
	})
	newKeyFlags(c, &in, &tags)
	return p.verb(c, func(s *session) (err error) {
		if err := readNewKey(s, &in, tags); err != nil {
			return err
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(api.CreateKey(ctx, in))
	})
}

// newKeyFlags adds the flags that say what a new key shall be.
func newKeyFlags(c *cobra.Command, in *client.CreateKeyInput, tags *[]string) {
	f := c.Flags()
	f.StringVar((*string)(&in.Spec), "spec", "", "`SPEC` of the key (required): "+join(specs()))
	f.StringVar((*string)(&in.Usage), "usage", "", "`USAGE` of the key: "+join(usages())+" (default: that of the spec)")
	f.StringVar(&in.Project, "project", "", "`PROJECT` to create it in (default: the credential's)")
	f.StringVar((*string)(&in.Protection), "protection", "",
		"`LEVEL`: HSM, or SEALED to allow use in process memory where no HSM offers the spec (default: the strongest)")
	f.StringVar(&in.Description, "description", "", "`TEXT` about the key, at most 1024 bytes")
	tagFlag(c, tags, "tag of the key as `NAME=VALUE`; repeat for more")
	f.BoolVar(&in.DeletionProtection, "deletion-protection", false, "refuse to schedule the key's deletion")
	f.IntVar(&in.RotationDays, "rotation-days", 0, "`NUMBER` of days between scheduled rotations, 1 to 3650 (default: there are none)")
	choices(c, "spec", specs()...)
	choices(c, "usage", usages()...)
	choices(c, "protection", kms.ProtectionHSM, kms.ProtectionSealed)
	noCompletion(c, "project", "description", "rotation-days")
}

// readNewKey completes the input of a verb that makes a key.
func readNewKey(s *session, in *client.CreateKeyInput, tags []string) (err error) {
	if in.Spec == "" {
		return usage(s.cmd, "--spec is missing")
	}
	if len(s.args) > 0 {
		in.Name = s.args[0]
	}
	in.Tags, err = parseTags(s.cmd, tags)
	return err
}

// nameOrNone takes the optional NAME of a new key.
func nameOrNone(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return argument("NAME")(c, args)
}

func (p *program) keyList() *cobra.Command {
	var in client.ListKeysInput
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List keys",
		Long:  "List the keys that the credential sees, by name.",
		Example: `  sluice key list
  sluice key list --project payments --json | jq -r '.keys[].name'`,
		Args: noArguments,
	}
	c.Flags().StringVar(&in.Project, "project", "", "keys of this `PROJECT` only")
	limitFlag(c, &limit, "keys")
	noCompletion(c, "project")
	return p.verb(c, func(s *session) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		keys, err := collect(api.ListKeys(ctx, in), limit)
		if err != nil {
			return err
		}
		return s.show(struct {
			Keys []*client.Key `json:"keys"`
		}{keys}, func(w io.Writer) error {
			rows := make([][]string, len(keys))
			for i, k := range keys {
				rows[i] = []string{k.Name, string(k.Spec), string(k.Usage), string(k.Protection), string(k.State),
					strconv.FormatUint(uint64(k.PrimaryVersion), 10), k.Project, date(k.CreatedAt)}
			}
			return table(w, []string{"NAME", "SPEC", "USAGE", "PROTECTION", "STATE", "VERSION", "PROJECT", "CREATED"}, rows)
		})
	})
}

func (p *program) keyGet() *cobra.Command {
	return p.keyVerb(&cobra.Command{
		Use:   "get KEY",
		Short: "Show a key",
		Long:  "Show a key's metadata and versions. \"sluice public\" shows its public half.",
		Example: `  sluice key get payments/orders
  sluice key get payments/orders --json`,
	}, func(s *session, key string) error {
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(api.GetKey(ctx, key))
	})
}

func (p *program) keyUpdate() *cobra.Command {
	var description string
	var tags []string
	var noTags, protection bool
	c := tries(&cobra.Command{
		Use:   "update KEY",
		Short: "Change a key's description, tags or deletion protection",
		Long:  "Change a key's description, tags or deletion protection. What is not named stays as it is.",
		Example: `  sluice key update backups --description "nightly backups"
  sluice key update backups --tag team=storage --tag stage=live
  sluice key update backups --deletion-protection=false`,
	})
	f := c.Flags()
	f.StringVar(&description, "description", "", "new description as `TEXT`; empty removes it")
	tagFlag(c, &tags, "new tags as `NAME=VALUE`, repeated; they replace all tags")
	f.BoolVar(&noTags, "no-tags", false, "remove all tags")
	f.BoolVar(&protection, "deletion-protection", false, "refuse to schedule the key's deletion; =false allows it")
	noCompletion(c, "description")
	c.MarkFlagsMutuallyExclusive("tag", "no-tags")
	return p.keyVerb(c, func(s *session, key string) (err error) {
		var in client.UpdateKeyInput
		if f.Changed("description") {
			in.Description = &description
		}
		if f.Changed("deletion-protection") {
			in.DeletionProtection = &protection
		}
		switch {
		case noTags:
			in.Tags = map[string]string{}
		case len(tags) > 0:
			if in.Tags, err = parseTags(c, tags); err != nil {
				return err
			}
		}
		if in.Description == nil && in.DeletionProtection == nil && in.Tags == nil {
			return usage(c, "there is nothing to change")
		}
		ctx, api, err := s.connect()
		if err != nil {
			return err
		}
		return s.showKey(api.UpdateKey(ctx, key, in))
	})
}

// showKey prints a key, whose versions may be absent.
func (s *session) showKey(k *client.KeyOutput, err error) error {
	if err != nil {
		return err
	}
	return s.show(k, func(w io.Writer) error {
		if err := details(w,
			field{"Name", k.Name}, field{"Id", k.ID}, field{"Project", k.Project}, field{"Spec", string(k.Spec)},
			field{"Usage", string(k.Usage)}, field{"Algorithms", join(k.Algorithms)}, field{"Protection", string(k.Protection)},
			field{"State", string(k.State)}, field{"Deletion", date(k.DeletionDate)},
			field{"Deletion protection", onOff(k.DeletionProtection)},
			field{"Description", k.Description}, field{"Tags", showTags(k.Tags)}, field{"Created", date(k.CreatedAt)},
			field{"Origin", string(k.Origin)}, field{"Rotation", showRotation(k)}, field{"Last used", showLastUse(k)},
		); err != nil || len(k.Versions) == 0 {
			return err
		}
		fmt.Fprintln(w)
		rows := make([][]string, len(k.Versions))
		for i, v := range k.Versions {
			note := ""
			switch {
			case v.Version == k.PrimaryVersion:
				note = "primary"
			case !v.DestroyAt.IsZero():
				note = "destroyed at " + date(v.DestroyAt)
			}
			rows[i] = []string{strconv.FormatUint(uint64(v.Version), 10), string(v.State), date(v.CreatedAt), note}
		}
		return table(w, []string{"VERSION", "STATE", "CREATED"}, rows)
	})
}

func showRotation(k *client.KeyOutput) string {
	if k.RotationDays == 0 {
		return ""
	}
	return fmt.Sprintf("every %d days, next at %s", k.RotationDays, date(k.NextRotation))
}

func showLastUse(k *client.KeyOutput) string {
	if k.LastUsed.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", date(k.LastUsed), k.LastUsedOp)
}

func tagFlag(c *cobra.Command, tags *[]string, usage string) {
	// Not a StringToString: it splits values at commas.
	c.Flags().StringArrayVar(tags, "tag", nil, usage)
	noCompletion(c, "tag")
}

func parseTags(c *cobra.Command, tags []string) (map[string]string, error) {
	if len(tags) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(tags))
	for _, t := range tags {
		name, value, ok := strings.Cut(t, "=")
		if _, twice := m[name]; !ok || name == "" || twice {
			return nil, usage(c, "--tag must be NAME=VALUE, with each name once")
		}
		m[name] = value
	}
	return m, nil
}

func showTags(tags map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		list = append(list, name+"="+tags[name])
	}
	return strings.Join(list, ", ")
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

func usages() []kms.Usage {
	var list []kms.Usage
	for _, i := range kms.Specs() {
		for _, u := range i.Usages {
			if !slices.Contains(list, u.Usage) {
				list = append(list, u.Usage)
			}
		}
	}
	return list
}

func join[T ~string](list []T) string {
	text := make([]string, len(list))
	for i, v := range list {
		text[i] = string(v)
	}
	return strings.Join(text, ", ")
}
