package sqlite

import (
	"context"
	"database/sql"

	"github.com/sluice-kms/sluice/keystore"
)

// Settings of nodes are the operators', of no tenant, and as few as nodes.
const (
	nodeSettingColumns = `node, mode, changed, revision, mac, mac_version`

	selectNodeSetting = `SELECT ` + nodeSettingColumns + ` FROM node_settings WHERE node = ?`
	listNodeSettings  = `SELECT ` + nodeSettingColumns + ` FROM node_settings ORDER BY node`
	insertNodeSetting = `INSERT INTO node_settings (` + nodeSettingColumns + `) VALUES (?, ?, ?, ?, ?, ?)`
	updateNodeSetting = `UPDATE node_settings SET mode = ?, changed = ?, revision = ?, mac = ?, mac_version = ?
		WHERE node = ? AND revision = ?`
)

func nodeSettingTargets(r *keystore.NodeSettingRow) []any {
	return []any{&r.Node, &r.Mode, &r.Changed, &r.Revision, &r.Code.MAC, &r.Code.Version}
}

// NodeSetting implements keystore.NodeSettingDriver.
func (db *DB) NodeSetting(ctx context.Context, p keystore.NodeSettingParams) (*keystore.NodeSettingRow, error) {
	var r keystore.NodeSettingRow
	err := db.row(ctx, selectNodeSetting, p.Node).Scan(nodeSettingTargets(&r)...)
	return &r, db.translate(err)
}

// ListNodeSettings implements keystore.NodeSettingDriver.
func (db *DB) ListNodeSettings(ctx context.Context) (all []*keystore.NodeSettingRow, err error) {
	err = db.list(ctx, func(rows *sql.Rows) error {
		r := new(keystore.NodeSettingRow)
		all = append(all, r)
		return rows.Scan(nodeSettingTargets(r)...)
	}, listNodeSettings)
	return all, err
}

// InsertNodeSetting implements keystore.NodeSettingDriver.
func (db *DB) InsertNodeSetting(ctx context.Context, p keystore.InsertNodeSettingParams) error {
	n := &p.Setting
	return db.write(ctx, func(tx transaction) error {
		_, err := tx.exec(ctx, insertNodeSetting, n.Node, n.Mode, n.Changed, n.Revision, n.Code.MAC, codeVersion(n.Code))
		return err
	})
}

// UpdateNodeSetting implements keystore.NodeSettingDriver.
func (db *DB) UpdateNodeSetting(ctx context.Context, p keystore.UpdateNodeSettingParams) error {
	n := &p.Setting
	return db.write(ctx, func(tx transaction) error {
		return tx.execOne(ctx, keystore.ErrStale, updateNodeSetting, n.Mode, n.Changed, n.Revision,
			n.Code.MAC, codeVersion(n.Code), n.Node, n.Revision-1)
	})
}
