package keystore

import (
	"context"
	"errors"
	"slices"
	"uuid"

	"github.com/sluice-kms/sluice/kms"
)

// NodeSetting implements kms.NodeSettings.
func (s *Store) NodeSetting(ctx context.Context, node kms.NodeID) (*kms.NodeSetting, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	row, err := s.driver.NodeSetting(ctx, NodeSettingParams{Node: string(node)})
	if err != nil {
		return nil, translate(err)
	}
	setting, err := decodeNodeSetting(c, row, &node)
	if err != nil {
		return nil, s.decoded(err)
	}
	return setting, nil
}

// NodeSettings implements kms.NodeSettings. Damaged ones are reported to the
// log and left out: those nodes are what they are.
func (s *Store) NodeSettings(ctx context.Context) ([]kms.NodeSetting, error) {
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	rows, err := s.driver.ListNodeSettings(ctx)
	if err != nil {
		return nil, translate(err)
	}
	var settings []kms.NodeSetting
	for _, row := range rows {
		setting, err := decodeNodeSetting(c, row, nil)
		if err != nil {
			_ = s.decoded(err)
			continue
		}
		settings = append(settings, *setting)
	}
	return settings, nil
}

// SetNodeMode implements kms.NodeSettings.
func (s *Store) SetNodeMode(ctx context.Context, node kms.NodeID, revision uint64, mode kms.NodeMode) (*kms.NodeSetting, error) {
	setting := &kms.NodeSetting{Node: node, Mode: mode, Revision: revision + 1, Changed: s.now()}
	if err := argument(func(fail failFunc) { checkNodeSetting(setting, fail) }); err != nil {
		return nil, err
	}
	c, err := s.coder()
	if err != nil {
		return nil, err
	}
	record := encodeNodeSetting(setting)
	if record.Code, err = c.code(codeNodeSetting, record.fields()); err != nil {
		return nil, err
	}
	if revision == 0 {
		err = s.driver.InsertNodeSetting(ctx, InsertNodeSettingParams{Setting: record})
		if errors.Is(err, ErrExists) {
			err = ErrStale // it was stored meanwhile
		}
	} else {
		err = s.driver.UpdateNodeSetting(ctx, UpdateNodeSettingParams{Setting: record})
	}
	if err != nil {
		return nil, translate(err)
	}
	s.known.raise(rowOfNode(string(node)), setting.Revision)
	return setting, nil
}

func checkNodeSetting(n *kms.NodeSetting, fail failFunc) {
	switch {
	case n.Node == "" || len(n.Node) > kms.MaxNameLength || !storableText(string(n.Node)):
		fail("node", reasonRange)
	case !slices.Contains(kms.NodeModes(), n.Mode):
		fail("mode", reasonUnknown)
	case n.Changed.IsZero():
		fail("changed", reasonMissing)
	}
}

func encodeNodeSetting(n *kms.NodeSetting) NodeSettingRecord {
	return NodeSettingRecord{Node: string(n.Node), Mode: string(n.Mode), Changed: timestamp(n.Changed), Revision: n.Revision}
}

func decodeNodeSetting(c *rowCoder, r *NodeSettingRow, want *kms.NodeID) (*kms.NodeSetting, error) {
	d := newDecoder(ObjectNodeSetting, uuid.Nil(), uuid.Nil())
	n := &kms.NodeSetting{
		Node:     kms.NodeID(d.text(r.Node, "node")),
		Mode:     kms.NodeMode(d.text(r.Mode, "mode")),
		Changed:  d.time(r.Changed, "changed"),
		Revision: d.revision(r.Revision),
	}
	d.require(want == nil || n.Node == *want, "node", "is another than was asked for")
	if d.result() == nil {
		checkNodeSetting(n, d.fail)
	}
	if d.result() == nil {
		record := encodeNodeSetting(n)
		c.check(d, codeNodeSetting, record.fields(), r.Code)
		c.current(d, rowOfNode(string(n.Node)), n.Revision)
	}
	return n, d.result()
}
